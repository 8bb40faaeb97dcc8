"""Verbs that look into the findings of runs: compare, strategies, matches."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.cli import options as opt
from transexplain.errors import ConfigurationError

if TYPE_CHECKING:
    from transexplain.reports.runs_compared import DriftSummary
    from transexplain.reports.runs_compared.comparison_records import AnswerChanges, GroupChanges
    from transexplain.reports.verdict_words import RateChange, VerdictChange
    from transexplain.store.database import Database
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
    report_dir: opt.ReportDir = Path("audits"),
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Compare two runs over the same data, item by item and entity by entity."""
    from orchestrator.dispatch import finish
    from transexplain.reports.report_formats import render_json
    from transexplain.reports.runs_compared import compare_runs

    with opt.open_store(opt.settings_with(db)) as store:
        before = _before(store, run_b) if run_a == _PREVIOUS else run_a
        drift = compare_runs(store, before, run_b, force=force)
    if json_:
        typer.echo(render_json(drift), nl=False)
        return
    console = Console(highlight=False)
    console.print(_pairs(drift))
    groups, answers = drift.groups, drift.predictions.answers
    if groups is not None and groups.rates:
        console.print(_rates(groups.rates))
    if groups is not None and groups.verdicts:
        console.print(_verdicts(groups.verdicts))
    if answers is not None and answers.groups:
        console.print(_answers(answers))
    console.print(_classes(drift))
    if groups is not None:
        for table in _groups(groups):
            console.print(table)
        if (left := len(groups.shifts) - _ROWS) > 0:
            console.print(f"{left} more rows are in the report")
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


def _table(title: str | Text, left: Sequence[str], right: Sequence[str], **look: Any) -> Table:
    """An empty table with columns on the left and numbers to their right."""
    table = Table(*left, title=title, title_justify="left", **look)
    for name in right:
        table.add_column(name, justify="right")
    return table


def _rates(rows: "Sequence[RateChange]") -> Table:
    """The rates of predictions on the same items of a group, the largest change first."""
    numbers = ("items", "before", "after", "points", "interval")
    table = _table("predictions by group", ("group", "prediction"), numbers)
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


def _verdicts(rows: "Sequence[VerdictChange]") -> Table:
    table = _table("verdicts of either run", ("group", "the mention", "outcomes"), ())
    for row in rows[:_ROWS]:
        table.add_row(
            Text(row.group),
            _moved(row.mention_before, row.mention_after),
            _moved(row.outcome_before, row.outcome_after),
            style="bold yellow" if row.changed else None,
        )
    return table


def _answers(answers: "AnswerChanges") -> Table:
    """The rates of changed answers, by the group that a prompt names."""
    numbers = ("prompts", "another answer", "share", "right before", "after", "of")
    table = _table("answers", ("group",), numbers)
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


def _classes(drift: "DriftSummary") -> Table:
    numbers = ("pairs", "logit before", "after", "agreement", "of")
    table = _table("explanations", ("target", "class"), numbers)
    for change in drift.changes[:_ROWS]:
        known = change.agreement
        table.add_row(
            Text(change.target),
            Text(change.class_name),
            f"{change.items:,}",
            f"{change.logit_before:+.3f}",
            f"{change.logit_after:+.3f}",
            *(("", "") if known is None else (f"{known.mean:.3f}", f"{known.items:,}")),
        )
    return table


def _groups(groups: "GroupChanges") -> list[Table]:
    """One table per target and class, of the groups that moved most."""
    verdicts = {
        (row.target, row.class_name, row.group): _moved(row.before, row.after)
        for row in groups.transitions
    }
    tables: dict[tuple[str, str], Table] = {}
    for row in sorted(groups.shifts, key=lambda row: -abs(row.change))[:_ROWS]:
        key = row.target, row.class_name
        if key not in tables:
            title = Text(f"relevance of each group's mentions, {key[0]}: {key[1]}")
            numbers = ("entities", "change", "p", "to reference", "p")
            look = {"box": SIMPLE_HEAD, "padding": (0, 1, 0, 0)}
            tables[key] = _table(title, ("group",), numbers, **look)
            tables[key].add_column("by relevance")
        tables[key].add_row(
            Text(row.group),
            f"{row.entities:,}",
            _number(row.change if row.interval else None, "+.3f"),
            _number(row.adjusted_p, ".3f"),
            _number(row.apart, "+.3f"),
            _number(row.apart_adjusted_p, ".3f"),
            Text(verdicts.get((*key, row.group), "reference")),
            style="bold yellow" if "difference" in (row.verdict, row.apart_verdict) else None,
        )
    return list(tables.values())


def _moved(before: str | None, after: str | None) -> str:
    if before == after:
        return after or "-"
    return f"{before or '-'} → {after or '-'}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def strategies(
    run_id: opt.RunId = "latest",
    *,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", "-t", help="as the audit names it; default: predicted, else its first"
        ),
    ] = None,
    class_: Annotated[str | None, typer.Option("--class", help="look at this class alone")] = None,
    sample: Annotated[
        int, typer.Option("--sample", help="largest number of items of a class")
    ] = 2000,
    report_dir: opt.ReportDir = Path("audits"),
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
    from transexplain.reports.report_section import merged
    from transexplain.store import runs
    from transexplain.store.shard_digests import refuse_damaged

    with opt.open_store(opt.settings_with(db)) as store:
        run = runs.get(store, run_id)
        if checked is None:
            refuse_damaged(store, run.id)
            path = out or Path(f"matches-{run.id}.csv")
            drawn = _write(store, run, path, sample, seed)
            dropped = sorted(merged(store, run.id).dropped.items(), key=lambda e: (-e[1], e[0]))
    if checked is not None:
        precisions = checked_precisions(checked, [group.name for group in run.plan.groups])
        if json_:
            typer.echo(json.dumps([asdict(precision) for precision in precisions], indent=2))
            return
        for precision in precisions:
            low, high = precision.interval
            typer.echo(
                f"{precision.group}: {precision.correct} of {precision.checked} are right, "
                f"precision {precision.precision:.3f} (95 % interval {low:.3f} to {high:.3f})"
            )
    elif json_:
        left_out = [{"group": g, "entity": e, "count": n} for (g, e), n in dropped]
        typer.echo(json.dumps({"sheet": str(path), "matches": drawn, "ambiguous": left_out}))
    else:
        typer.echo(
            f"{drawn} matches are in {path}; write yes or no into the column `correct`, then run "
            f"`transexplain matches {run.id} --checked {path}`"
        )
        if dropped:
            named = [f"{entity} ({group}) {count}" for (group, entity), count in dropped[:_LISTED]]
            more = f" and {len(dropped) - _LISTED} more" if len(dropped) > _LISTED else ""
            typer.echo(
                f"{sum(count for _, count in dropped)} places were left out, where nothing "
                "distinguishes a name from an ordinary word (groups.ambiguous): "
                f"{', '.join(named)}{more}"
            )


def _write(store: "Database", run: "AuditRun", path: Path, sample: int, seed: int) -> int:
    from transexplain.analysis.groups.entity_finder import whole_families
    from transexplain.analysis.groups.matching_sheet import sampled_mentions, write_sheet
    from transexplain.store import readers

    if run.plan.privacy is not None and run.plan.privacy.store_text != "full":
        raise ConfigurationError(
            f"run {run.id} was made with store_text: {run.plan.privacy.store_text}, so its texts "
            "are not stored and nobody can check matches in them. Check those of a run with "
            "store_text: full over a sample of the data (data.sample)"
        )
    families = whole_families(run.plan)
    mentions = (  # of whole items and regions of pictures there is no spelling to check
        mention
        for mention in readers.iter_mentions(store, run.id)
        if mention.end > mention.start
        and not any(mention.group == f"{family}/{mention.surface}" for family in families)
    )
    drawn = sampled_mentions(mentions, sample, seed)
    if not drawn:
        raise ConfigurationError(
            f"run {run.id} has no matches in texts; name groups with groups.lexicon or data.spans"
        )
    ids = {mention.item_id for mention in drawn}
    texts = {
        attribution.item_id: attribution.text
        for attribution in readers.iter_attributions(store, run.id, item_ids=ids)
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
