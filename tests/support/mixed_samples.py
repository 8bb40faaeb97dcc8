"""A simulated corpus that a cheap and an exact method explained: a mention in every item."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from entity_samples import POSITIVE, mention

from transexplain.analysis.groups.entity_totals import EntityTotals
from transexplain.analysis.groups.group_cells import Cell, cells_of
from transexplain.analysis.groups.mixed_audits import ExactSample, PairedMentions


@dataclass(frozen=True)
class Corpus:
    """Every item by both methods."""

    rows: tuple[PairedMentions, ...]  #: one for every item

    def cells(self, exact: bool = False) -> list[Cell]:
        """What an audit by one of the methods alone adds up."""
        totals = EntityTotals()
        for one in self.rows:
            value = one.exact if exact else one.cheap
            reported = mention(one.group, one.entity, value, one.item_id)
            totals.add(POSITIVE, [reported], magnitude=2.0)
        return cells_of(totals)

    def sample(self, share: float, seed: int = 0) -> tuple[ExactSample, float]:
        """Randomly sampled items, and which part of all they are."""
        draw = random.Random(seed)
        drawn = [one for one in self.rows if draw.random() < share]
        return ExactSample(items=len(drawn), mentions=drawn), len(drawn) / len(self.rows)


def corpus(
    exact: Mapping[str, float],
    cheap: Callable[[str, float, random.Random], float],
    *,
    entities: int = 12,
    mentions: int = 40,
    seed: int = 1,
) -> Corpus:
    """Groups of entities around a mean each; `cheap` makes relevance of (group, exact, draw)."""
    draw, rows = random.Random(seed), []
    for group, mean in exact.items():
        for number in range(entities):
            own = draw.gauss(mean, 0.1)
            for _ in range(mentions):
                value = draw.gauss(own, 0.2)
                rows.append(paired(len(rows), group, number, cheap(group, value, draw), value))
    return Corpus(tuple(rows))


def paired(item: int, group: str, number: int, cheap: float, exact: float) -> PairedMentions:
    """One mention in an item of its own."""
    return PairedMentions(
        item_id=str(item),
        target=POSITIVE.target,
        class_name=POSITIVE.class_name,
        predicted="",
        label="",
        slice="",
        group=group,
        entity=f"{group}{number}",
        mentions=1,
        cheap=cheap,
        exact=exact,
    )
