"""The chart, the job and the commands in them: rendered, validated offline, and run."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from celery_fleets import celery_fleet
from command_line_here import run_here
from keda_schemas import keda_schema
from store_samples import make_plan, make_shards
from tiny_audit import make_audit
from typer.main import get_command

from orchestrator.cli.command_line import app
from transexplain.settings import Settings
from transexplain.store import fleet_state, queueing, readers, runs, shards
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.upkeep import grant_read

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "ops" / "helm" / "transexplain"
SBATCH = ROOT / "ops" / "slurm" / "workers.sbatch"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
#: versions of Kubernetes that manifests are for: the chart's lowest, and one of today
KUBERNETES = ("1.27", "1.34")
SECRETS = "/run/secrets/transexplain/"
PAGE = (ROOT / "docs" / "how-to" / "clusters.md").read_text(encoding="utf-8")


def rendered(values: dict[str, Any] | None = None, name: str = "te") -> list[dict[str, Any]]:
    """The chart's objects with these values over its own."""
    helm = pytest.importorskip("helm_python", reason="Helm's library has no wheel for this system")
    with helm.Chart.load(CHART) as chart:
        chart.validate_schema(values or {})
        texts = chart.render(values or {}, name=name, namespace="audits").values()
    return [one for text in texts for one in yaml.safe_load_all(text) if one]


#: values -> what they change; each is rendered and validated
VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "without KEDA": {
        "keda": {"enabled": False},
        "workers": {"cpu": {"minReplicas": 3}, "gpu": {"enabled": False}},
    },
    "everything": {
        "image": {"repository": "registry.example.org/audits/transexplain", "tag": "0.1.0-cuda"},
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccount": "audits",
        "snapshots": {"claim": ""},
        "env": {"TRANSEXPLAIN_LEASE_SECONDS": "30"},
        "extraSecrets": {"TRANSEXPLAIN_TEXT_KEY": "text-key"},
        "podDisruptionBudget": {"maxUnavailable": 1},
        "workers": {
            "cpu": {
                "modalities": ["text", "nodes"],
                "args": ["--threads", "2"],
                "nodeSelector": {"pool": "spot"},
                "affinity": {"podAntiAffinity": {}},
            },
            "gpu": {"tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}]},
            "l4": {**VALUES["workers"]["gpu"], "nodeSelector": {"card": "l4"}},
        },
        "serve": {"args": ["--live"], "hosts": ["audits.example.org"]},
    },
}


@pytest.fixture(params=VARIANTS)
def objects(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return rendered(VARIANTS[request.param])


def pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, spec) of every pod there would be."""
    for one in objects:
        if one["kind"] in ("Deployment", "Job"):
            yield one["metadata"]["name"], one["spec"]["template"]["spec"]


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_one_of_kubernetes_or_keda(
    objects: list[dict[str, Any]], version: str
) -> None:
    import kubernetes_validate

    kinds = {one["kind"] for one in objects}
    assert {"Deployment", "Job", "PodDisruptionBudget", "Service"} <= kinds
    for one in objects:
        if one["apiVersion"].startswith("keda.sh/"):
            jsonschema.validate(one, keda_schema(one["kind"]))
        else:
            kubernetes_validate.validate(one, version, strict=True)


def test_wrong_values_are_refused() -> None:
    helm = pytest.importorskip("helm_python", reason="Helm's library has no wheel for this system")
    for wrong in (
        {"wokers": {}},
        {"workers": {"cpu": {"deviceClass": "tpu"}}},
        {"workers": {"gpu": {"terminationGracePeriodSeconds": 1}}},
        {"secret": {"databaseUrl": "postgresql://user:password@db/audits"}},
        {"env": {"TRANSEXPLAIN_LEASE_SECONDS": 30}},
    ):
        with pytest.raises(helm.errors.HelmError):
            rendered(wrong)


def test_names_meet(objects: list[dict[str, Any]]) -> None:
    """What selects, scales or mounts something by its name has it."""
    workers = of_kind(objects, "Deployment")
    labels = {
        name: one["spec"]["template"]["metadata"]["labels"].items() for name, one in workers.items()
    }
    for name, one in workers.items():
        selector = one["spec"]["selector"]["matchLabels"].items()
        assert [other for other in labels if selector <= labels[other]] == [name]
    for kind in ("PodDisruptionBudget", "ScaledObject"):
        for name in of_kind(objects, kind):
            assert "-worker-" in name and name in workers
    for name, one in of_kind(objects, "ScaledObject").items():
        assert one["spec"]["scaleTargetRef"]["name"] == name
        assert "replicas" not in workers[name]["spec"], "KEDA's number would be undone"
        (trigger,) = one["spec"]["triggers"]
        assert trigger["authenticationRef"]["name"] in of_kind(objects, "TriggerAuthentication")
    (service,) = of_kind(objects, "Service").values()
    serve = workers["te-serve"]["spec"]["template"]
    assert service["spec"]["selector"].items() <= serve["metadata"]["labels"].items()
    for _, pod in pods(objects):
        (container,) = pod["containers"]
        mounted = {one["name"] for one in container["volumeMounts"]}
        assert mounted == {one["name"] for one in pod["volumes"]}


def test_secrets_are_names_and_a_pod_has_those_that_it_reads(
    objects: list[dict[str, Any]],
) -> None:
    assert "Secret" not in {one["kind"] for one in objects}
    for name, pod in pods(objects):
        (container,) = pod["containers"]
        (volume,) = [one["secret"] for one in pod["volumes"] if one["name"] == "secrets"]
        words = [*container["args"], *(one["value"] for one in container["env"])]
        read = {word.removeprefix(SECRETS) for word in words if word.startswith(SECRETS)}
        assert read == {one["key"] for one in volume["items"]}, name
        assert ("owner-url" in read) == name.endswith("-migrate"), "it alone may alter tables"
        assert all(one["key"] == one["path"] for one in volume["items"])


def test_pods_have_few_rights(objects: list[dict[str, Any]]) -> None:
    for _, pod in pods(objects):
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        (container,) = pod["containers"]
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"]
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]


def test_every_argument_is_one_of_the_command_line(objects: list[dict[str, Any]]) -> None:
    group: Any = get_command(app)
    for _, pod in pods(objects):
        verb, *words = pod["containers"][0]["args"]
        command = group.commands[verb]
        command.make_context(verb, list(words), resilient_parsing=True)
        known = {name for one in options_of(command, words) for name in one.opts}
        assert {word for word in words if word.startswith("--")} <= known


def options_of(command: Any, words: list[str]) -> list[Any]:
    """The options of a verb, or of the verb that the first word names."""
    context = command.make_context("verb", list(words), resilient_parsing=True)
    inner = getattr(context.command, "commands", None)
    return list((inner[words[0]] if inner else context.command).params)


def test_the_chart_asks_what_the_command_line_asks(objects: list[dict[str, Any]]) -> None:
    for name, one in of_kind(objects, "ScaledObject").items():
        worker = of_kind(objects, "Deployment")[name]
        args = worker["spec"]["template"]["spec"]["containers"][0]["args"]
        modalities = [after for word, after in pairwise(args) if word == "--modality"]
        device = "cpu" if args[args.index("--devices") + 1] == "cpu" else "gpu"
        (trigger,) = one["spec"]["triggers"]
        wanted = fleet_state.demand_sql(device, modalities)  # type: ignore[arg-type]
        assert trigger["metadata"]["query"] == wanted


def test_spot_nodes_may_go_at_any_time(objects: list[dict[str, Any]]) -> None:
    for name, pod in pods(objects):
        if "-worker-" in name:
            (container,) = pod["containers"]
            assert pod["terminationGracePeriodSeconds"] >= Settings().lease_seconds
            assert "lifecycle" not in container, "SIGTERM is what the worker knows"
            assert "--until-idle" not in container["args"], "it would start again at once"


def test_the_image_has_what_the_chart_starts() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", text)
    assert "serve" in extras.split(",")
    assert 'ENTRYPOINT ["transexplain"]' in text
    assert int(re.findall(r"--uid (\d+)", text)[0]) == VALUES["podSecurityContext"]["runAsUser"]


def test_the_job_is_sound_shell() -> None:
    words = ["shellcheck", "--severity=style", str(SBATCH)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def directives() -> dict[str, str]:
    text = SBATCH.read_text(encoding="utf-8")
    return dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", text, re.MULTILINE))


def test_the_job_hears_of_its_end_and_starts_again() -> None:
    text = SBATCH.read_text(encoding="utf-8")
    given = directives()
    assert len(given) == text.count("\n#SBATCH "), "a line that Slurm would not read"
    assert given["array"] and given["requeue"] == ""
    # the shell alone gets the signal, and the worker has taken its place
    assert re.fullmatch(r"B:TERM@\d+", given["signal"])
    (command,) = re.findall(r"^exec (transexplain .*?[^\\])$", text, re.MULTILINE | re.DOTALL)
    words = command.replace("\\\n", " ").split()
    assert words[:2] == ["transexplain", "worker"] and "--until-idle" in words
    worker: Any = get_command(app).commands["worker"]  # type: ignore[attr-defined]
    known = {name for option in options_of(worker, []) for name in option.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_files_are_distributed_and_documented() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "ops" in document["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    for key in VALUES:
        assert f"`{key}" in PAGE, f"docs/how-to/clusters.md does not name {key}"
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert compose["x-transexplain"]["image"] == f"transexplain:{chart['appVersion']}"


def on_gpu(plan: Any) -> Any:
    return replace(plan, model=replace(plan.model, device="cuda:1", modality="image"))


def test_what_needs_a_worker_is_counted(any_db: Database) -> None:
    db = any_db
    run_id = runs.create(db, make_plan(), make_shards(5, 1))
    runs.create(db, on_gpu(make_plan()), make_shards(3, 1))
    demand = partial(fleet_state.demand, db)
    assert (demand(), demand("cpu"), demand("gpu")) == (8, 5, 3)
    assert (demand("gpu", ("text",)), demand(None, ("image", "nodes"))) == (0, 3)
    claims = [shards.claim(db, run_id, f"host:{i}:x", 60.0) for i in range(2)]
    assert demand("cpu") == 5, "what is in hand needs its worker"
    queueing.change(db, run_id, most_workers=3)
    assert demand("cpu") == 3
    queueing.change(db, run_id, most_workers=None)
    queueing.pause(db, run_id)
    assert demand("cpu") == 2, "shards in hand are finished"
    assert all(shards.give_back(db, claim) for claim in claims if claim)
    assert demand("cpu") == 0
    queueing.unpause(db, run_id)
    runs.cancel(db, run_id)
    assert demand() == 3


@pytest.mark.postgres
def test_a_role_that_only_reads_answers_keda(postgres_url: str) -> None:
    """The query as it stands in the chart, by the connection that KEDA is given."""
    import psycopg

    scaled = of_kind(rendered(), "ScaledObject")["te-worker-cpu"]
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    plain = postgres_url.replace("postgresql+psycopg://", "postgresql://")
    role = f"te_keda_{os.getpid()}"
    with open_database(postgres_url, upgrade=True) as db:
        # PostgreSQL reads no document with NUL: the query must not ask it to
        runs.create(db, replace(make_plan(), name="nul \0 in it"), make_shards(4, 1))
        runs.create(db, on_gpu(make_plan()), make_shards(2, 1))
        with psycopg.connect(plain, autocommit=True) as owner:
            owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'keda'")
        try:
            grant_read(db, role)
            as_keda = re.sub(r"//[^@/]*@", f"//{role}:keda@", plain)
            with psycopg.connect(as_keda, autocommit=True) as connection:
                (row,) = connection.execute(query).fetchall()
                assert [float(value) for value in row] == [4.0]
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute("UPDATE run SET state = 'done'")
        finally:
            with psycopg.connect(plain, autocommit=True) as owner:
                owner.execute(f"DROP OWNED BY {role}")
                owner.execute(f"DROP ROLE {role}")


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    """A folder with `transexplain` as an installation would put it on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    file = folder / "transexplain"
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m orchestrator.cli "$@"\n')
    file.chmod(0o755)
    return folder


@pytest.mark.exhaustive
@pytest.mark.redis
def test_an_array_job_works_on_a_run(redis_url: str, tmp_path: Path, shim: Path) -> None:
    """Slurm's three commands are stood in for: each task is a process of the job's script."""
    stand_in = Path(__file__).parent / "support" / "slurm_stand_in.py"
    for name in ("sbatch", "squeue", "scancel"):
        file = shim / name
        file.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{stand_in}" {name} "$@"\n')
        file.chmod(0o755)
    with celery_fleet(redis_url, tmp_path) as fleet:
        spec = make_audit(tmp_path)
        slurm = {"SLURM_STAND_IN": str(tmp_path / "jobs"), "TRANSEXPLAIN_LINGER": "2"}
        path = f"{shim}{os.pathsep}{os.environ['PATH']}"
        env = {**fleet.env, **slurm, "PATH": path, "CUDA_VISIBLE_DEVICES": ""}
        words = ("run", str(spec), "--executor", "slurm", "--script", str(SBATCH), "--workers", "2")
        said = run_here(env, tmp_path, *words)
        (run,) = runs.list_runs(fleet.db)
        assert run.state == "done" and run.id in said
        assert {one.name for one in (tmp_path / "jobs" / "1").iterdir()} >= {"1.pid", "2.pid"}
        local = run_here(fleet.env, tmp_path, "run", str(spec), "--json")
        assert json.loads(local.splitlines()[-1])["exit_code"] == 0
        first, second = (explained(fleet.db, one.id) for one in runs.list_runs(fleet.db))
        assert first.keys() == second.keys()
        for key, relevance in first.items():
            assert relevance == pytest.approx(second[key], rel=1e-5, abs=1e-5)


def explained(db: Any, run_id: str) -> dict[tuple[str, str, int], list[float]]:
    """Every relevance of a run, by item, target and rank."""
    found = list(readers.iter_attributions(db, run_id))
    by_key = {(one.item_id, one.target, one.rank): list(one.relevance) for one in found}
    assert len(by_key) == len(found), "nothing is there twice"
    return by_key


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("run --model m --executor rai", "'ray'"),
        ("run --model m --executor slurm", "--script"),
        ("run --model m --executor slurm --script x.sbatch", "x.sbatch"),
        ("run --model m --workers 3", "--workers"),
        ("run --model m --executor celery --processes 2", "--processes"),
        ("run --model m --address auto", "--address"),
        ("resume --queue --executor local", "--executor celery"),
        ("worker --linger 3", "--until-idle"),
    ],
)
def test_wrong_requests_for_executors_are_refused(call: Any, words: str, named: str) -> None:
    code, printed = call(*words.split())
    assert code == 2 and named in printed
