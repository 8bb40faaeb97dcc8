"""Verdicts on a real model and real texts, beside what swapping does, measured at length.

    python -m benchmarks.real_verdicts SPEC.yaml ... [--texts 150] [--names 10]

Each specification is audited as `transexplain run` does, into a store of its own. Then, whatever
the audit drew, up to `--texts` texts of every group of two or more names are read with up to
`--names` names of the group and as many of its reference, and the mean difference is printed
beside the audit's effect, its 90 % interval and the verdict on both questions, with the standard
deviations of texts and of names that the audit's errors stand for (see `power.TEXT_SPREAD`).
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from orchestrator.dispatch.local import run_here
from orchestrator.plan import PreparedAudit, prepare_audit
from orchestrator.spec import load_spec
from transexplain.analysis.groups.answers import answers_of
from transexplain.analysis.groups.entity_finder import EntityFinder
from transexplain.analysis.groups.group_cells import references_of
from transexplain.analysis.groups.mention_matching import Match
from transexplain.analysis.groups.power import INSIDE
from transexplain.data.shard_reader import read_shard
from transexplain.explaining import Request, explain_items
from transexplain.reports.report_records import Summary
from transexplain.reports.summary import summarise, verdict
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.revisions import open_database
from transexplain.types.items import Item
from transexplain.types.plans import AuditPlan, Shard
from transexplain.types.scores import MethodSpec


def audited(path: Path, folder: Path) -> tuple[PreparedAudit, Summary]:
    """The report of one specification."""
    settings = Settings(
        database_url=f"sqlite:///{folder / 'runs.db'}", snapshot_dir=folder / "snapshots"
    )
    prepared = prepare_audit(load_spec(path), settings)
    with open_database(settings.database_url, upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        run_here(db, run_id, settings, model=prepared.model)
        return prepared, summarise(db, run_id, gallery=0)


def mentions(plan: AuditPlan, group: str, most: int) -> list[tuple[str, Match]]:
    """Texts that mention a group, and the first mention of each."""
    finder, found = EntityFinder(plan), []
    whole = Shard(index=0, start=0, stop=plan.dataset.rows)
    for item in read_shard(plan.dataset, whole):
        if isinstance(item, Item) and isinstance(item.content, str):
            matches = finder.find(item.content, item.annotations, item.meta).matches
            own = [one for one in matches if one.group == group]
            if own:
                found.append((item.content, own[0]))
    rng = np.random.default_rng(0)
    return [found[place] for place in rng.permutation(len(found))[:most]]


def measured(
    prepared: PreparedAudit, group: str, others: Sequence[str], most: int, names: int
) -> float:
    """The mean difference of the first answer's log-odds over texts and names."""
    plan, rng = prepared.plan, np.random.default_rng(1)
    terms = {one.name: list(one.terms) for one in plan.groups}
    texts: list[str] = []
    for text, match in mentions(plan, group, most):
        for pool in (terms[group], [term for other in others for term in terms[other]]):
            chosen = [pool[place] for place in rng.permutation(len(pool))[:names]]
            texts += [f"{text[: match.start]}{_like(match, n)}{text[match.end :]}" for n in chosen]
            texts += [text] * (names - len(chosen))  # keeps the table square
    request = Request.from_plan(plan)
    forward = Request(
        method=MethodSpec(name="random"), targets=(), names=request.names, batch_tokens=4096
    )
    items = [Item(id=str(place), index=place, content=text) for place, text in enumerate(texts)]
    ends = list(explain_items(prepared.model, items, forward))
    answer = answers_of(plan)[0]
    values = [float(answer.log_odds(end.outcome.logits)) if end.outcome else np.nan for end in ends]
    table = np.array(values).reshape(-1, 2, names)
    return float(np.nanmean(table[:, 0] - table[:, 1]))


def _like(match: Match, name: str) -> str:
    return name[:1].upper() + name[1:] if match.surface[:1].isupper() else name


def rows(prepared: PreparedAudit, summary: Summary, texts: int, names: int) -> Iterator[str]:
    """One line for every verdict of a summary."""
    plan = prepared.plan
    references = references_of(plan.reference, [one.name for one in plan.groups])
    assert summary.groups is not None
    for one in summary.groups.verdicts:
        swap, rates = one.counterfactual, one.rates
        verdict_ = f"{one.mention}, {one.outcome}"
        measure = swap.measure("logit") if swap else None
        if swap is None or measure is None or measure.precision is None:
            yield f"  {one.group:30}{verdict_:30} {(*one.mention_reasons, '')[0]}"
            continue
        others = references[one.group].groups
        truth = measured(prepared, one.group, others, texts, names)
        known, number = measure.precision, min(swap.entities, swap.other_entities)
        low, high = known.like.interval(INSIDE)
        changed, rate = swap.measure("changed"), rates.difference if rates else 0.0
        spreads = (known.by_text * known.texts) ** 0.5, (known.by_name * number / 2) ** 0.5
        yield (
            f"  {one.group:30}{verdict_:30}{swap.effect:+7.2f} [{low:+.2f}, {high:+.2f}]"
            f"{truth:+7.2f}"
            f"{swap.documents:6}{100 * (changed.value if changed else 0.0):+8.1f} %"
            f"{100 * rate:+8.1f}{spreads[0]:7.2f}{spreads[1]:6.2f}"
        )
        for advice in (one.mention_advice, one.outcome_advice):
            if advice:
                yield f"      {advice}"


def main() -> None:
    """Parse, audit, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("specs", nargs="+", type=Path)
    parser.add_argument("--texts", type=int, default=150)
    parser.add_argument("--names", type=int, default=10)
    options = parser.parse_args()
    for path in options.specs:
        with tempfile.TemporaryDirectory() as folder:
            prepared, summary = audited(path, Path(folder))
            print(f"{path.stem}: {verdict(summary).text}")
            print(
                f"  {'group':30}{'mention, outcome':30}{'swaps':>7} {'90 %':14}{'truth':>7}"
                f"{'texts':>6}{'changed':>10}{'points':>8}{'texts':>7}{'names':>6}"
            )
            for line in rows(prepared, summary, options.texts, options.names):
                print(line, flush=True)


if __name__ == "__main__":
    main()
