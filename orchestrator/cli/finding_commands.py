"""Verbs that look into the findings of runs: compare, strategies, matches."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options as opt
from transexplain.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from transexplain.analysis.groups.matching_sheet import Precision
    from transexplain.analysis.groups.paired_runs import GroupShift
    from transexplain.reports.runs_compared import DriftSummary
    from transexplain.reports.runs_compared.comparison_records import AnswerChanges
    from transexplain.reports.verdict_words import RateChange, VerdictChange
    from transexplain.store.database import Database
    from transexplain.types.items import Mention
    from transexplain.types.plans import AuditRun

_PREVIOUS = "previous"
_ROWS = 30  # of a table in the terminal; the page has all


def compare(
    run_a: Annotated[
        str,
        typer.Argument(
            help="the earlier run: id, its beginning, or `previous`: the one that RUN_B names"
        ),
    ],
    run_b: Annotated[str, typer.Argument(help="the later run")] = "latest",
    *,
    force: Annotated[
        bool, typer.Option("--force", help="compare although more than the model differs")
    ] = False,
    report_dir: Annotated[
        opt.Place,
        opt.place_option("--out", "-o", "--report-dir", help="where the report is written"),
    ] = Path("audits"),
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Compare two runs over the same data, item by item and entity by entity."""
    from orchestrator.dispatch import finish
    from transexplain.reports.runs_compared import compare_runs
    from transexplain.reports.runs_compared.comparison_summary import render_json

    with opt.open_store(opt.settings_with(db)) as store:
        before = run_a if run_a != _PREVIOUS else _before(store, run_b)
        drift = compare_runs(store, before, run_b, force=force)
    if json_:
        typer.echo(render_json(drift), nl=False)
        return
    _print(drift)
    finish.write_comparison(drift, report_dir)


def _before(store: "Database", run_id: str) -> str:
    """The earlier run that this run names."""
    from transexplain.store import runs

    run = runs.get(store, run_id)
    if run.previous is None:
        raise ConfigurationError(
            f"run {run.id} does not name a run before it; give the id of one in place of "
            "`previous`, or make runs with `transexplain run --previous RUN`"
        )
    return run.previous


def _print(drift: "DriftSummary") -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_pairs(drift))
    if drift.groups is not None and drift.groups.rates:
        console.print(_rates(drift.groups.rates))
    if drift.groups is not None and drift.groups.verdicts:
        console.print(_verdicts(drift.groups.verdicts))
    if drift.predictions.answers is not None and drift.predictions.answers.groups:
        console.print(_answers(drift.predictions.answers))
    console.print(_classes(drift))
    for table in _groups(drift):
        console.print(table)
    left = len(drift.groups.shifts) - _ROWS if drift.groups else 0
    if left > 0:
        console.print(f"{left} more rows are in the report")


def _pairs(drift: "DriftSummary") -> str:
    """The number of compared items, and why others are left out."""
    predictions = drift.predictions
    left = (
        (predictions.other_content, "left out: other content under the same id"),
        (predictions.unknown_content, "left out: contents not stored, so not compared"),
    )
    things = "item" if predictions.common == 1 else "items"
    parts = [f"{predictions.common:,} {things} in both", *(f"{n:,} {why}" for n, why in left if n)]
    answers = predictions.answers
    if answers is not None and answers.share is not None:
        parts.append(f"{answers.changed:,} with another answer ({100 * answers.share:.1f} %)")
    if answers is not None and answers.unknown:
        parts.append(f"{answers.unknown:,} whose answers are not stored")
    return "; ".join(parts)


def _rates(rows: "Sequence[RateChange]") -> "Table":
    """The rates of predictions on the same items of a group, the largest change first."""
    from rich.table import Table
    from rich.text import Text

    table = Table("group", "prediction", title="predictions by group", title_justify="left")
    for name in ("items", "before", "after", "points", "interval"):
        table.add_column(name, justify="right")
    table.add_column("")
    states = {"outside": "changed", "inside": "unchanged", "open": "open"}
    for row in sorted(rows, key=lambda row: -abs(row.measure.value))[:_ROWS]:
        low, high = row.measure.interval or (None, None)
        interval = "-" if low is None or high is None else f"{100 * low:+.1f} to {100 * high:+.1f}"
        table.add_row(
            Text(row.group),
            Text(row.prediction),
            f"{row.items:,}",
            *(f"{100 * share:.1f} %" for share in (row.before, row.after)),
            f"{100 * row.measure.value:+.1f}",
            interval,
            states[row.measure.state],
            style="bold yellow" if row.measure.state == "outside" else None,
        )
    return table


def _verdicts(rows: "Sequence[VerdictChange]") -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(
        *("group", "the mention", "outcomes"), title="verdicts of either run", title_justify="left"
    )
    for row in rows[:_ROWS]:
        table.add_row(
            Text(row.group),
            _moved(row.mention_before, row.mention_after),
            _moved(row.outcome_before, row.outcome_after),
            style="bold yellow" if row.changed else None,
        )
    return table


def _answers(answers: "AnswerChanges") -> "Table":
    """The rates of changed answers, by the group that a prompt names."""
    from rich.table import Table
    from rich.text import Text

    table = Table("group", title="answers", title_justify="left")
    for name in ("prompts", "another answer", "share", "right before", "after", "of"):
        table.add_column(name, justify="right")
    for group in answers.groups[:_ROWS]:
        counts = (group.right_before, group.right_after, group.labelled)
        table.add_row(
            Text(group.group),
            f"{group.items:,}",
            f"{group.changed:,}",
            f"{100 * group.share:.1f} %",
            *(f"{count:,}" if group.labelled else "" for count in counts),
        )
    return table


def _classes(drift: "DriftSummary") -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table("target", "class", title="explanations", title_justify="left")
    for name in ("pairs", "logit before", "after", "agreement", "of"):
        table.add_column(name, justify="right")
    for change in drift.changes[:_ROWS]:
        table.add_row(
            Text(change.target),
            Text(change.class_name),
            f"{change.items:,}",
            f"{change.logit_before:+.3f}",
            f"{change.logit_after:+.3f}",
            "" if change.agreement is None else f"{change.agreement.mean:.3f}",
            "" if change.agreement is None else f"{change.agreement.items:,}",
        )
    return table


def _groups(drift: "DriftSummary") -> "Iterator[Table]":
    """One table per target and class, of the groups that moved most."""
    if drift.groups is None:
        return
    verdicts = {
        (transition.target, transition.class_name, transition.group): _moved(
            transition.before, transition.after
        )
        for transition in drift.groups.transitions
    }
    shown = sorted(drift.groups.shifts, key=lambda row: -abs(row.change))[:_ROWS]
    for key in dict.fromkeys((row.target, row.class_name) for row in shown):
        rows = [row for row in shown if (row.target, row.class_name) == key]
        yield _of_class(key, rows, [verdicts.get((*key, row.group), "reference") for row in rows])


def _of_class(
    key: tuple[str, str], rows: "Sequence[GroupShift]", verdicts: "Sequence[str]"
) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    title = Text(f"relevance of each group's mentions, {key[0]}: {key[1]}")
    table = Table("group", title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("entities", "change", "p", "to reference", "p"):
        table.add_column(name, justify="right")
    table.add_column("by relevance")
    for row, verdict in zip(rows, verdicts, strict=True):
        table.add_row(
            Text(row.group),
            f"{row.entities:,}",
            _number(row.change if row.interval else None, "+.3f"),
            _number(row.adjusted_p, ".3f"),
            _number(row.apart, "+.3f"),
            _number(row.apart_adjusted_p, ".3f"),
            Text(verdict),
            style="bold yellow" if "difference" in (row.verdict, row.apart_verdict) else None,
        )
    return table


def _moved(before: str | None, after: str | None) -> str:
    if before == after:
        return after or "-"
    return f"{before or '-'} → {after or '-'}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


Target = Annotated[
    str | None,
    typer.Option(
        "--target", "-t", help="as the audit names it; default: predicted, else its first"
    ),
]
Class = Annotated[str | None, typer.Option("--class", help="look at this class alone")]
Sample = Annotated[int, typer.Option("--sample", help="largest number of items of a class")]
ReportDir = Annotated[
    opt.Place, opt.place_option("--out", "-o", "--report-dir", help="where the files are written")
]


def strategies(
    run_id: opt.RunId = "latest",
    *,
    target: Target = None,
    class_: Class = None,
    sample: Sample = 2000,
    report_dir: ReportDir = Path("audits"),
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Cluster a run's explanations class by class; point out what looks like a shortcut."""
    from orchestrator.dispatch import finish
    from transexplain.analysis.strategies.discover_strategies import discover
    from transexplain.reports.strategies_report import render_json, strategy_report

    with opt.open_store(opt.settings_with(db)) as store:
        discovery = discover(store, run_id, target=target, class_name=class_, sample=sample)
        report = strategy_report(store, discovery)
    if json_:
        typer.echo(render_json(report))
    else:
        finish.write_strategies(report, report_dir)


#: ambiguous entities that are listed
_LISTED = 10


def matches(
    run_id: opt.RunId = "latest",
    *,
    sample: Annotated[int, typer.Option("--sample", min=1, help="matches in the sheet")] = 100,
    seed: Annotated[int, typer.Option("--seed", help="seed of the sample")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="the sheet (CSV); default: matches-RUN.csv")
    ] = None,
    checked: Annotated[
        Path | None, typer.Option("--checked", help="a sheet whose column `correct` is filled in")
    ] = None,
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Write random matches in context for a person to check, or report their precision."""
    from transexplain.analysis.groups.matching_sheet import checked_precisions
    from transexplain.store import runs
    from transexplain.store.shard_digests import refuse_damaged

    with opt.open_store(opt.settings_with(db)) as store:
        run = runs.get(store, run_id)
        if checked is not None:
            _print_precisions(
                checked_precisions(checked, [group.name for group in run.plan.groups]), json_
            )
            return
        refuse_damaged(store, run.id)
        path = out or Path(f"matches-{run.id}.csv")
        drawn = _write(store, run, path, sample, seed)
        dropped = _dropped(store, run)
    if json_:
        left_out = [{"group": g, "entity": e, "count": n} for (g, e), n in dropped]
        typer.echo(json.dumps({"sheet": str(path), "matches": drawn, "ambiguous": left_out}))
        return
    typer.echo(
        f"{drawn} matches are in {path}; write yes or no into the column `correct`, then run "
        f"`transexplain matches {run.id} --checked {path}`"
    )
    for line in _dropped_lines(dropped):
        typer.echo(line)


def _write(store: "Database", run: "AuditRun", path: Path, sample: int, seed: int) -> int:
    from transexplain.analysis.groups.matching_sheet import sampled_mentions, write_sheet
    from transexplain.store import results

    if run.plan.privacy is not None and run.plan.privacy.store_text != "full":
        raise ConfigurationError(
            f"run {run.id} was made with store_text: {run.plan.privacy.store_text}, so its texts "
            "are not stored and nobody can check matches in them. Check those of a run with "
            "store_text: full over a sample of the data (data.sample)"
        )
    mentions = (
        mention for mention in results.iter_mentions(store, run.id) if _was_matched(run, mention)
    )
    drawn = sampled_mentions(mentions, sample, seed)
    if not drawn:
        raise ConfigurationError(
            f"run {run.id} has no matches in texts; name groups with groups.lexicon or data.spans"
        )
    ids = {mention.item_id for mention in drawn}
    texts = {
        attribution.item_id: attribution.text
        for attribution in results.iter_attributions(store, run.id, item_ids=ids)
        if attribution.text is not None
    }
    if lost := sorted(ids - texts.keys()):
        raise ConfigurationError(f"the text of item {lost[0]!r} is not in the store")
    try:
        with path.open("w", encoding="utf-8", newline="") as stream:
            write_sheet(stream, drawn, texts)
    except OSError as error:
        raise ConfigurationError(f"cannot write the sheet {path}: {error}") from error
    return len(drawn)


def _was_matched(run: "AuditRun", mention: "Mention") -> bool:
    """False for whole items and regions of pictures: there is no spelling to check."""
    from transexplain.analysis.groups.entity_finder import whole_families

    families = whole_families(run.plan)
    whole = any(mention.group == f"{family}/{mention.surface}" for family in families)
    return not whole and mention.end > mention.start


def _dropped(store: "Database", run: "AuditRun") -> list[tuple[tuple[str, str], int]]:
    """((group, entity), times left out as ambiguous), the most frequent first."""
    from transexplain.reports.report_section import merged

    dropped = merged(store, run.id).dropped
    return sorted(dropped.items(), key=lambda entry: (-entry[1], entry[0]))


def _dropped_lines(dropped: list[tuple[tuple[str, str], int]]) -> list[str]:
    if not dropped:
        return []
    named = [f"{entity} ({group}) {count}" for (group, entity), count in dropped[:_LISTED]]
    more = f" and {len(dropped) - _LISTED} more" if len(dropped) > _LISTED else ""
    total = sum(count for _, count in dropped)
    return [
        f"{total} places were left out, where nothing distinguishes a name from an ordinary word "
        f"(groups.ambiguous): {', '.join(named)}{more}"
    ]


def _print_precisions(precisions: list["Precision"], json_: bool) -> None:
    if json_:
        typer.echo(json.dumps([asdict(precision) for precision in precisions], indent=2))
        return
    for precision in precisions:
        low, high = precision.interval
        typer.echo(
            f"{precision.group}: {precision.correct} of {precision.checked} are right, precision "
            f"{precision.precision:.3f} (95 % interval {low:.3f} to {high:.3f})"
        )
