"""Whether group means of a cheap method, corrected by an exact sample, hold what they promise.

    python -m benchmarks.prediction_powered MODEL DATA LEXICON --out DIR [--cheap NAME ...]

The cheap methods and the exact one explain every item once (relevance is kept as .npz in DIR,
named by model, data, class, lexicon and method). Then items are
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
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from benchmarks.prediction_powered_data import Corpus, Population, method_of, population
from transexplain.analysis.groups.entity_totals import EntityTotals, Stratum
from transexplain.analysis.groups.group_cells import Cell, cells_of
from transexplain.analysis.groups.group_table import Rules, table_of
from transexplain.analysis.groups.mixed_audits import (
    ExactSample,
    MixedGroup,
    PairedMentions,
    mixed_groups,
    mixed_table,
)
from transexplain.randomness import row_number
from transexplain.types.items import Mention

_TARGET = "target"
_RULES = Rules(bare=True, permutations=9)


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
        reported = [_mention(str(item), names, relevance) for names, relevance in mentions]
        totals.add(Stratum(_TARGET, _TARGET), reported, 1.0)
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


@cache
def _numbers(rows: int, seed: int) -> NDArray[np.uint64]:
    """(rows,) what the audit's hash gives each row; the same for every share and method."""
    return np.array([row_number(row, seed) for row in range(rows)], dtype=np.uint64)


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
        drawn = np.flatnonzero(_numbers(cheap.rows, seed) < share * 2**64).tolist()
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
        printed = f"{other.covered / other.used:.1%} of {other.used}" if other.used else "-"
        lines.append(
            f"| {name} | {one.items / one.used:.0f} | {one.covered / one.used:.1%} | "
            f"{one.alone / one.used:.1%} | {one.width / one.alone_width:.2f} | {printed} |"
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
    parser.add_argument(
        "--params",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="of the cheap methods, values in YAML",
    )
    parser.add_argument("--exact", default="lrp")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.05, 0.1])
    parser.add_argument("--resamples", type=int, default=2_000)
    parser.add_argument("--tables", type=int, default=200, help="samples for differences")
    return parser.parse_args(arguments)


def parameters(given: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE pairs, the values in YAML; raises ValueError for what is no pair."""
    pairs = [one.partition("=") for one in given]
    wrong = [name for name, equals, _ in pairs if not (name and equals)]
    if wrong:
        raise ValueError(f"--params takes NAME=VALUE, and this is none: {', '.join(wrong)}")
    return {name: yaml.safe_load(value) for name, _, value in pairs}


def main() -> None:
    """Explain, draw, print."""
    chosen = parsed()
    chosen.out.mkdir(parents=True, exist_ok=True)
    corpus = Corpus(
        model=chosen.model,
        data=chosen.data,
        lexicon=chosen.lexicon,
        target=chosen.target,
        folder=chosen.out,
    )
    exact = population(corpus, method_of(chosen.exact, {}))
    for name in chosen.cheap:
        cheap = population(corpus, method_of(name, parameters(chosen.params)))
        for share in chosen.shares:
            begun = time.perf_counter()
            found = study(cheap, exact, share, chosen.resamples, chosen.tables)
            took = time.perf_counter() - begun
            print(
                f"\n{name} for {chosen.exact}, exact_sample {share:g}, {chosen.resamples:,} samples"
            )
            print(f"({took:.0f} s)\n\n{table(*found, chosen.resamples)}", flush=True)


if __name__ == "__main__":
    main()
