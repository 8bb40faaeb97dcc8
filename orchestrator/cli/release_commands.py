"""Verbs for releases and archives: gate, export, manifest, verify."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options as opt
from transexplain.errors import ConfigurationError
from transexplain.reports.exports import EXPORTS

if TYPE_CHECKING:
    from orchestrator.gate.policy_verdict import GateVerdict
    from transexplain.provenance.verification import VerifiedLine


_FAILED = 1


def gate(
    run_id: opt.RunId = "latest",
    *,
    policy: Annotated[
        Path, typer.Option("--policy", help="the policy that the run must meet (YAML)")
    ],
    junit: Annotated[
        opt.Place | None, opt.place_option("--junit", help="write the rules as JUnit XML, too")
    ] = None,
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Check a run against a policy: a line for every rule, exit code 1 where one is broken."""
    from orchestrator.gate.policy import load_policy
    from orchestrator.gate.policy_verdict import judge, junit_xml
    from transexplain.reports.exports.export_run import write_text

    request = load_policy(policy)
    with opt.open_store(opt.settings_with(db)) as store:
        verdict = judge(store, run_id, request)
    if junit is not None:
        write_text(junit, junit_xml(verdict))
    if json_:
        typer.echo(json.dumps(asdict(verdict), indent=2))
    else:
        _print(verdict)
    if not verdict.passed:
        raise typer.Exit(_FAILED)


def _print(verdict: "GateVerdict") -> None:
    width = max(len(check.rule) for check in verdict.checks)
    for check in verdict.checks:
        word, colour = ("PASS", "green") if check.passed else ("FAIL", "red")
        if check.open:
            word, colour = "OPEN", "yellow" if check.passed else "red"
        styled = typer.style(word, fg=colour, bold=not check.passed)
        typer.echo(f"{styled}  {check.rule:<{width}}  {check.text}")
    broken = sum(not check.passed for check in verdict.checks)
    end = f"{broken} of {len(verdict.checks)} rules are broken" if broken else "every rule is kept"
    if opened := sum(check.open for check in verdict.checks):
        end += f", {opened} open"
    typer.echo(f"run {verdict.run_id} ({verdict.name}): {end}")


def export(
    run_id: opt.RunId = "latest",
    *,
    form: Annotated[str, typer.Option("--format", "-f", help=", ".join(EXPORTS))],
    output: Annotated[
        opt.Place | None,
        opt.place_option(
            *("--output", "--out", "-o"),
            help="file, or folder for csv; default: print, if it is a text",
        ),
    ] = None,
    redact: opt.Redact = False,
    min_count: opt.MinCount = None,
    db: opt.DatabaseUrl = None,
) -> None:
    """Write a run's attributions, tables or findings for other programs; docs/how-to/export.md."""
    from transexplain.reports.exports.export_run import export as export_run

    with opt.open_store(opt.settings_with(db)) as store:
        text = export_run(store, run_id, form, output, redact=redact, min_count=min_count)
    if text is not None:
        typer.echo(text, nl=False)
    else:
        typer.echo(f"{form}: {output}")


_COLOURS = {"PASS": typer.colors.GREEN, "FAIL": typer.colors.RED, "NOTE": typer.colors.YELLOW}

ManifestOutput = Annotated[
    opt.Place | None,
    opt.place_option("--output", "-o", help="write it there and print its hashes"),
]
Items = Annotated[int, typer.Option("--items", min=0, help="items that are explained again")]
Tolerance = Annotated[
    float | None,
    typer.Option("--tolerance", help="difference allowed, as a share of the largest |relevance|"),
]
ModelPlace = Annotated[str | None, typer.Option("--model", help="current path of the model")]
Seed = Annotated[int, typer.Option("--seed", help="seed of the sample of items")]
Device = Annotated[str | None, typer.Option("--device", help="torch device; default: the plan's")]
BatchTokens = Annotated[
    int | None, typer.Option("--batch-tokens", min=1, help="positions per batch")
]
ManifestFile = Annotated[
    Path | None, typer.Option("--manifest", help="a manifest that the run must match")
]
RunOrLatest = Annotated[
    str | None, typer.Argument(help="run id, its beginning, or `latest` (default)")
]
SignatureFile = Annotated[
    Path | None,
    typer.Option(
        "--signature",
        help="check this signature of a report, with --public-key; no run is read unless one is "
        "named",
    ),
]
PublicKey = Annotated[
    Path | None,
    typer.Option("--public-key", help="public key of the signer (PEM), with --signature"),
]
DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", help="folder where data files, lexicons, pictures, explainers are"),
]


def manifest(
    run_id: opt.RunId = "latest", *, output: ManifestOutput = None, db: opt.DatabaseUrl = None
) -> None:
    """Print what a run was made from and how it went, as canonical JSON."""
    from transexplain.provenance.manifest import manifest_of
    from transexplain.reports.exports.export_run import write_text
    from transexplain.store import runs

    with opt.open_store(opt.settings_with(db)) as store:
        manifest = manifest_of(store, runs.get(store, run_id).id)
    if output is None:
        typer.echo(manifest.text, nl=False)
        return
    write_text(output, manifest.text.decode())
    typer.echo(f"inputs {manifest.name}\nmanifest {manifest.sha256}")


def verify(  # noqa: PLR0913 - the options of a command line
    run_id: RunOrLatest = None,
    *,
    signature: SignatureFile = None,
    public_key: PublicKey = None,
    items: Items = 20,
    seed: Seed = 0,
    tolerance: Tolerance = None,
    model: ModelPlace = None,
    device: Device = None,
    batch_tokens: BatchTokens = None,
    data_root: DataRoot = None,
    manifest_file: ManifestFile = None,
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Hash every input and stored byte of a run, and explain some items again.

    Exit code 1 where a check fails.
    """
    of_signature = _signature_checks(signature, public_key)
    if of_signature is not None and run_id is None:
        _conclude(f"signature {signature}", None, _shown(of_signature(None), silent=json_), json_)
        return
    from transexplain.provenance.verification import VerifyRequest
    from transexplain.provenance.verify import verify as checks_of
    from transexplain.store import runs

    settings = opt.settings_with(db)
    request = VerifyRequest(
        items=items,
        seed=seed,
        tolerance=tolerance,
        model=model,
        device=device,
        batch_tokens=batch_tokens,
        data_root=data_root,
        snapshot_dir=settings.snapshot_dir,
    )
    with opt.open_store(settings) as store:
        run = runs.id_of(store, run_id or "latest")
        signed = of_signature(run) if of_signature else ()
        results = _shown(chain(signed, checks_of(store, run, request, manifest_file)), silent=json_)
    _conclude(f"run {run}", run, results, json_)


def _signature_checks(
    signature: Path | None, public_key: Path | None
) -> "Callable[[str | None], Iterator[VerifiedLine]] | None":
    """The check of a signature, of one run or any; None where none was given."""
    from transexplain.provenance.report_signature import signature_checks

    if signature is not None and public_key is not None:
        return partial(signature_checks, signature, public_key)
    if signature is not None or public_key is not None:
        raise ConfigurationError(
            "--signature FILE and --public-key FILE go together: a signature is checked against "
            "the key of the expected signer"
        )
    return None


def _conclude(what: str, run: str | None, results: "list[VerifiedLine]", json_: bool) -> None:
    """Print the result of the checks of `what`; exit code 1 where any failed."""
    failed = sum(check.status == "FAIL" for check in results)
    if json_:
        document = {"run": run, "failed": failed, "checks": [asdict(check) for check in results]}
        typer.echo(json.dumps(document, indent=2))
    else:
        many = f"{failed} check{'s' if failed > 1 else ''} failed"
        typer.echo(f"{what}: {many if failed else 'verified'}")
    if failed:
        raise typer.Exit(1)


def _shown(checks: "Iterable[VerifiedLine]", *, silent: bool) -> "list[VerifiedLine]":
    """Every check, each printed as soon as it is done."""
    results = []
    for check in checks:
        results.append(check)
        if not silent:
            status = typer.style(check.status, fg=_COLOURS[check.status])
            typer.echo(f"{status}  {check.name}: {check.text}")
    return results
