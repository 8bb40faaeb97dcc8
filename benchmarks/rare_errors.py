"""Whether mixed audits hold what they promise where the cheap method is seldom, but far, wrong.

    python -m benchmarks.rare_errors [--corpora 1000] [--items 45 100 300]

Every corpus is a new random sample: two groups of 30 entities with 50 mentions each, one in an
item, and no difference between them. Entities vary around 0 and mentions around their entity;
*spread* is the standard deviation of the exact relevance. The cheap method has a little noise and
is off by some logits for a share of the mentions of one group; so many items of each group are
drawn. Printed per design: how often the interval of that group's mean holds what the exact method
gives on the whole corpus, as prediction-powered inference has it without room for errors that were
not seen (*plain*), by the exact sample alone, and as reports have it; how often these fall back on
the exact sample; widths over that of the exact sample alone; and how often the interval of the
difference holds 0.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.entity_totals import DocumentSums, EntityRow
from transexplain.analysis.groups.group_cells import Cell
from transexplain.analysis.groups.group_table import Rules
from transexplain.analysis.groups.intervals import Interval
from transexplain.analysis.groups.mixed_audits import (
    ExactSample,
    PairedMentions,
    mixed_groups,
    mixed_table,
    sampled,
    tuned,
)

ENTITIES, MENTIONS = 30, 50
NOISE = 0.05  #: of the cheap method, in spreads
_RULES = Rules(reference="B", bare=True, permutations=9)
_Array = NDArray[np.float64]


class Design(NamedTuple):
    """How the cheap method is wrong."""

    spread: float  #: standard deviation of the exact relevance, in logits
    rate: float  #: share of mentions
    size: float  #: in logits
    skewed: bool = False  #: mentions vary by an exponential law

    def __str__(self) -> str:
        """For a row of the table."""
        error = f"{self.rate:.0%} off by {self.size:g}" if self.rate else "none"
        return f"{error} | {self.spread:g}{', skewed' if self.skewed else ''}"


def designs() -> Iterator[Design]:
    """No errors, then each rate and size, for narrow, wide and skewed relevance."""
    for spread, skewed in ((0.22, False), (1.0, False), (0.22, True)):
        yield Design(spread, 0.0, 0.0, skewed)
        for rate in (0.01, 0.03, 0.1):
            for size in (1.0, 3.0):
                yield Design(spread, rate, size, skewed)


@dataclass(slots=True)
class Counted:
    """What happened in the corpora of one design so far."""

    used: int = 0
    plain: int = 0
    alone: int = 0
    held: int = 0
    fallen: int = 0
    plain_width: float = 0.0
    width: float = 0.0
    compared: int = 0
    differences: int = 0


def measure(design: Design, items: int, corpora: int, seed: int = 0) -> Counted:
    """Draw so many corpora, and count."""
    draw, found = np.random.default_rng((seed, items)), Counted()
    for _ in range(corpora):
        cell, drawn, truth = _corpus(design, items, draw)
        sample = ExactSample(items=2 * items, mentions=drawn)
        fraction = items / (ENTITIES * MENTIONS)
        row = next(one for one in mixed_groups([cell], sample, fraction) if one.group == "A")
        if row.interval is None or row.alone_interval is None:
            continue
        alone = row.alone_interval[1] - row.alone_interval[0]
        plain = _plain(drawn, row.cheap, fraction)
        found.used += 1
        found.plain += _holds(plain, truth)
        found.alone += _holds(row.alone_interval, truth)
        found.held += _holds(row.interval, truth)
        found.fallen += bool(row.reason)
        found.plain_width += (plain[1] - plain[0]) / alone
        found.width += (row.interval[1] - row.interval[0]) / alone
        [compared] = [
            one for one in mixed_table([cell], _RULES, sample, fraction) if one.group == "A"
        ]
        if compared.p is not None and compared.difference_interval is not None:
            found.compared += 1
            found.differences += _holds(compared.difference_interval, 0.0)
    return found


def _corpus(
    design: Design, items: int, draw: np.random.Generator
) -> tuple[Cell, list[PairedMentions], float]:
    """The cheap method's totals, the sampled mentions, and the exact mean of group A."""
    groups: dict[str, list[EntityRow]] = {}
    drawn: list[PairedMentions] = []
    truth = 0.0
    for group in "AB":
        exact, cheap = _relevance(design, group == "A", draw)
        truth = float(exact.mean()) if group == "A" else truth
        groups[group] = [_entity(group, n, cheap[n]) for n in range(ENTITIES)]
        chosen = draw.choice(exact.size, items, replace=False)
        drawn += [_paired(group, int(n), cheap.flat[n], exact.flat[n]) for n in chosen]
    cell = Cell(
        target="t",
        class_name="t",
        groups=groups,
        documents=dict.fromkeys("AB", ENTITIES * MENTIONS),
        pairs={},
    )
    return cell, drawn, truth


def _relevance(design: Design, wrong: bool, draw: np.random.Generator) -> tuple[_Array, _Array]:
    """(entities, mentions) of the exact and of the cheap method; a fifth of the variance is the
    entity's."""
    shape = ENTITIES, MENTIONS
    own = draw.normal(0.0, np.sqrt(0.2), (ENTITIES, 1))
    around = draw.exponential(1.0, shape) - 1.0 if design.skewed else draw.normal(0.0, 1.0, shape)
    exact = design.spread * (own + np.sqrt(0.8) * around)
    cheap = exact + design.spread * draw.normal(0.0, NOISE, shape)
    if wrong:
        cheap += design.size * (draw.random(shape) < design.rate)
    return exact, cheap


def _entity(group: str, number: int, cheap: _Array) -> EntityRow:
    total, squares, n = float(cheap.sum()), float((cheap**2).sum()), len(cheap)
    return EntityRow(
        group=group,
        entity=f"{group}{number}",
        documents=n,
        mentions=n,
        mean=total / n,
        squares=squares,
        share=0.0,
        positive=0,
        by_document=DocumentSums(relevance=squares, left=total, right=total, mentions=n),
    )


def _paired(group: str, place: int, cheap: float, exact: float) -> PairedMentions:
    return PairedMentions(
        item_id=f"{group}{place}",
        target="t",
        class_name="t",
        predicted="",
        label="",
        slice="",
        group=group,
        entity=f"{group}{place // MENTIONS}",
        mentions=1,
        cheap=float(cheap),
        exact=float(exact),
    )


def _plain(drawn: list[PairedMentions], cheap: float, fraction: float) -> Interval:
    """The interval of group A without room for errors that were not seen."""
    rows = [one for one in drawn if one.group == "A"]
    weights = {(one.group, one.entity): 1.0 for one in rows}
    scale = tuned(rows, weights)
    return sampled(rows, weights, fraction, scale=scale).estimate(scale * cheap).interval()


def _holds(interval: Interval, value: float) -> bool:
    return interval[0] <= value <= interval[1]


def row_of(design: Design, items: int, found: Counted) -> str:
    """One row of the table, in Markdown."""
    used, compared = max(1, found.used), max(1, found.compared)
    parts = [
        f"{design}",
        f"{items}",
        *(f"{n / used:.1%}" for n in (found.plain, found.alone, found.held, found.fallen)),
        f"{found.plain_width / used:.2f}",
        f"{found.width / used:.2f}",
        f"{found.differences / compared:.1%}",
    ]
    return f"| {' | '.join(parts)} |"


def main() -> None:
    """Draw, count, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--corpora", type=int, default=1_000)
    parser.add_argument("--items", nargs="+", type=int, default=[45, 100, 300])
    requested = parser.parse_args()
    heads = "errors|spread|items|plain|alone|reported|fallen back|width, plain|width|difference"
    print(f"| {heads.replace('|', ' | ')} |\n|{' --- |' * 10}")
    for design in designs():
        for items in requested.items:
            print(row_of(design, items, measure(design, items, requested.corpora)), flush=True)


if __name__ == "__main__":
    main()
