"""Whether group means of a cheap method, corrected by an exact sample, hold what they promise.

    python -m benchmarks.prediction_powered MODEL DATA LEXICON --out DIR [--cheap NAME ...]

The cheap methods and the exact one explain every item once (kept as .npz in DIR). Then items are
drawn by the audit's own hash with one seed after the other, as an audit with `exact_sample` draws
them, and every group's mean and difference is estimated from the cheap relevance of all items and
the exact one of the drawn. Printed per group: how often the interval holds what the exact method
gives on all items, and its mean width beside that of the exact sample alone.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transexplain.bias.cells import Cell, cells_of
from transexplain.bias.entity_totals import EntityTotals, Stratum
from transexplain.bias.exact_sample import ExactSample, PairedMentions
from transexplain.bias.group_table import Rules, table_of
from transexplain.bias.mixed import MixedGroup, mixed_groups
from transexplain.bias.mixed_table import mixed_table
from transexplain.data.sampling import number
from transexplain.evaluations import MethodSpec
from transexplain.types import Mention

_Array = NDArray[np.float64]
_TARGET = "target"
_RULES = Rules(bare=True, permutations=9)


@dataclass(frozen=True, slots=True)
class Population:
    """Every mention of a corpus for one class, N in all."""

    item: NDArray[np.intp]  #: (N,) row of the data
    key: NDArray[np.intp]  #: (N,) place in `names`
    relevance: _Array  #: (N,) in logits
    names: tuple[tuple[str, str], ...]  #: (group, entity)
    rows: int  #: of the data


def population(options: argparse.Namespace, method: MethodSpec) -> Population:
    """The mentions with their relevance by `method`; read from the folder where it is there."""
    place = options.out / f"{method.name}.npz"
    if not place.exists():
        _explain(options, method, place)
    with np.load(place) as found:
        return Population(
            item=found["item"],
            key=found["key"],
            relevance=found["relevance"],
            names=tuple((str(group), str(entity)) for group, entity in found["names"]),
            rows=int(found["rows"]),
        )


def _explain(options: argparse.Namespace, method: MethodSpec, place: Path) -> None:
    from dataclasses import replace

    from orchestrator.plan import prepare_audit
    from orchestrator.spec import AuditSpec
    from transexplain.bias.aggregates import ShardAggregate
    from transexplain.data.reader import read_shard
    from transexplain.explaining import Request, explain_items
    from transexplain.mentioning import Mentioning
    from transexplain.plans import Shard
    from transexplain.settings import Settings

    spec = AuditSpec.model_validate(
        {
            "model": options.model,
            "data": options.data,
            "targets": options.target,
            "groups": {"lexicon": options.lexicon, "check": 0},
            "evaluation": {"items": 0},
        }
    )
    prepared = prepare_audit(spec, Settings(snapshot_dir=options.out / "snapshots"))
    plan, rows = prepared.plan, prepared.plan.dataset.rows
    items = read_shard(plan.dataset, Shard(index=0, start=0, stop=rows))
    request, mentioning = replace(Request.from_plan(plan), method=method), Mentioning(plan)
    names: dict[tuple[str, str], int] = {}
    found = []
    begun = time.perf_counter()
    for done in explain_items(prepared.model, items, request):
        if done.outcome is not None:
            for one in mentioning.of(done, ShardAggregate())[1]:
                place_of = names.setdefault((one.group, one.entity), len(names))
                found.append((done.outcome.index, place_of, one.relevance))
    print(f"{method.name}: {rows:,} items in {time.perf_counter() - begun:.0f} s", flush=True)
    np.savez(
        place,
        item=np.array([row for row, _, _ in found]),
        key=np.array([key for _, key, _ in found]),
        relevance=np.array([relevance for _, _, relevance in found]),
        names=np.array(list(names)),
        rows=rows,
    )


@dataclass(slots=True)
class Coverage:
    """What happened to one group in the samples so far."""

    used: int = 0
    covered: int = 0
    alone: int = 0  #: the interval of the exact sample alone covered
    items: int = 0
    width: float = 0.0
    alone_width: float = 0.0

    def count(self, row: MixedGroup, truth: float) -> None:
        """One sample in which the group was corrected."""
        if row.interval is None or row.alone_interval is None:
            return
        self.used += 1
        self.items += row.items
        self.covered += row.interval[0] <= truth <= row.interval[1]
        self.alone += row.alone_interval[0] <= truth <= row.alone_interval[1]
        self.width += row.interval[1] - row.interval[0]
        self.alone_width += row.alone_interval[1] - row.alone_interval[0]


def cells(found: Population) -> list[Cell]:
    """The entities of every group, as an audit adds them up."""
    totals = EntityTotals()
    by_item: dict[int, list[tuple[tuple[str, str], float]]] = defaultdict(list)
    for item, key, relevance in zip(found.item, found.key, found.relevance, strict=True):
        by_item[int(item)].append((found.names[int(key)], float(relevance)))
    for item, mentions in by_item.items():
        told = [_mention(str(item), names, relevance) for names, relevance in mentions]
        totals.add(Stratum(_TARGET, _TARGET), told, 1.0)
    return cells_of(totals)


def _mention(item: str, names: tuple[str, str], relevance: float) -> Mention:
    group, entity = names
    return Mention(
        item_id=item,
        target=_TARGET,
        rank=0,
        class_name=_TARGET,
        group=group,
        entity=entity,
        surface=entity,
        start=0,
        end=1,
        relevance=relevance,
    )


def paired(cheap: Population, exact: Population) -> dict[int, list[PairedMentions]]:
    """The mentions of every item by both methods; raises ValueError where they are not the same."""
    if cheap.names != exact.names or not np.array_equal(cheap.key, exact.key):
        raise ValueError("the two methods were asked about different mentions: empty the folder")
    found: dict[int, list[PairedMentions]] = defaultdict(list)
    rows = zip(cheap.item, cheap.key, cheap.relevance, exact.relevance, strict=True)
    for item, key, mine, theirs in rows:
        group, entity = cheap.names[key]
        one = PairedMentions(
            item_id=str(item),
            target=_TARGET,
            class_name=_TARGET,
            predicted="",
            label="",
            slice="",
            group=group,
            entity=entity,
            mentions=1,
            cheap=float(mine),
            exact=float(theirs),
        )
        found[int(item)].append(one)
    return found


def study(
    cheap: Population, exact: Population, share: float, resamples: int, tables: int
) -> tuple[dict[str, Coverage], dict[str, Coverage]]:
    """Coverage of every group's mean, and of its difference to all others (of `tables` samples)."""
    mine, pairs = cells(cheap), paired(cheap, exact)
    truth = {row.group: row.cheap for row in mixed_groups(cells(exact), ExactSample(), 0.0)}
    right = {row.group: row.difference for row in table_of(cells(exact), _RULES)}
    means: dict[str, Coverage] = defaultdict(Coverage)
    differences: dict[str, Coverage] = defaultdict(Coverage)
    for seed in range(resamples):
        drawn = [row for row in range(cheap.rows) if number(row, seed) < share * 2**64]
        sample = ExactSample(items=len(drawn), mentions=[m for r in drawn for m in pairs[r]])
        fraction = len(drawn) / cheap.rows
        for row in mixed_groups(mine, sample, fraction):
            means[row.group].count(row, truth[row.group])
        for one in mixed_table(mine, _RULES, sample, fraction) if seed < tables else ():
            known, interval = right[one.group], one.difference_interval
            if one.p is not None and known is not None and interval is not None:
                kept = differences[one.group]
                kept.used += 1
                kept.covered += interval[0] <= known <= interval[1]
                kept.width += interval[1] - interval[0]
    return means, differences


def table(means: dict[str, Coverage], differences: dict[str, Coverage], resamples: int) -> str:
    """Markdown: the groups that were corrected in at least half of the samples."""
    lines = [
        "| group | sampled items | covers | alone covers | width / alone | difference covers |",
        "| --- | --: | --: | --: | --: | --: |",
    ]
    kept = {name: one for name, one in means.items() if one.used >= resamples / 2}
    for name, one in kept.items():
        other = differences.get(name, Coverage())
        said = f"{other.covered / other.used:.1%} of {other.used}" if other.used else "-"
        lines.append(
            f"| {name} | {one.items / one.used:.0f} | {one.covered / one.used:.1%} | "
            f"{one.alone / one.used:.1%} | {one.width / one.alone_width:.2f} | {said} |"
        )
    used = sum(one.used for one in kept.values())
    if used:
        covered, alone = (sum(getattr(o, n) for o in kept.values()) for n in ("covered", "alone"))
        lines.append(f"| all | | {covered / used:.1%} | {alone / used:.1%} | | |")
    return "\n".join(lines)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("lexicon")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", default="class:positive")
    parser.add_argument("--cheap", nargs="+", default=["gradient-x-input", "attnlrp"])
    parser.add_argument("--params", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--exact", default="lrp")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.05, 0.1])
    parser.add_argument("--resamples", type=int, default=2_000)
    parser.add_argument("--tables", type=int, default=200, help="samples for differences")
    return parser.parse_args(arguments)


def main() -> None:
    """Explain, draw, print."""
    asked = parsed()
    asked.out.mkdir(parents=True, exist_ok=True)
    exact = population(asked, MethodSpec(name=asked.exact))
    for name in asked.cheap:
        params = dict(one.split("=", 1) for one in asked.params)
        cheap = population(asked, MethodSpec(name=name, params=params))
        for share in asked.shares:
            begun = time.perf_counter()
            found = study(cheap, exact, share, asked.resamples, asked.tables)
            took = time.perf_counter() - begun
            print(
                f"\n{name} for {asked.exact}, exact_sample {share:g}, {asked.resamples:,} samples"
            )
            print(f"({took:.0f} s)\n\n{table(*found, asked.resamples)}", flush=True)


if __name__ == "__main__":
    main()
