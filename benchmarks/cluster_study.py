"""Whether groups without an effect are told apart because texts, authors or names are few.

    python -m benchmarks.cluster_study [--corpora N] [--effects X ...] [--designs NAME ...]

Every design makes corpora of two groups of names. A name, a text and a cluster of texts each have
a relevance of their own, a mention varies around their sum, and the group adds `effect` to it: 0 is
a corpus in which nothing is to be found. Printed per design and effect, with Wilson's intervals:
how often the verdict is *difference* (practical = 0: the tests alone decide) with the right sign,
how often the permutation over names alone rejects at 5 %, and how often a comparison is suppressed.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from transexplain.analysis.groups.entity_totals import EntityTotals, Stratum
from transexplain.analysis.groups.group_table import Rules, group_table
from transexplain.analysis.groups.intervals import wilson
from transexplain.randomness import generator
from transexplain.types.items import Mention

_STRATUM = Stratum("contrast", "yes")
_GROUPS = ("A", "B")
_PERMUTATIONS = 999
#: standard deviations of what names, texts, clusters and single mentions add
_NAME, _TEXT, _CLUSTER, _MENTION = 0.3, 0.5, 0.5, 0.5


@dataclass(frozen=True, slots=True)
class Text:
    """One text of a corpus."""

    group: str
    names: list[int]  #: one per mention, numbers within the group
    cluster: str = ""


Design = Callable[[np.random.Generator], Iterator[Text]]


def _independent(random: np.random.Generator) -> Iterator[Text]:
    for number in range(400):
        yield Text(_GROUPS[number % 2], [int(random.integers(20))])


def _casts(random: np.random.Generator) -> Iterator[Text]:
    """Five names of a group in each text, always the same five together."""
    for number in range(80):
        first = 5 * int(random.integers(4))
        yield Text(_GROUPS[number % 2], list(range(first, first + 5)))


def _authors(random: np.random.Generator) -> Iterator[Text]:
    """Twelve authors, each of whom writes of one group four times in five."""
    for _ in range(400):
        author = int(random.integers(12))
        favourite = random.random() < 0.8
        group = _GROUPS[(author + favourite) % 2]
        yield Text(group, [int(random.integers(20))], f"author {author}")


def _duplicates(random: np.random.Generator) -> Iterator[Text]:
    """Thirty texts of which there are one to thirty copies, each with another name."""
    for number in range(30):
        for _ in range(int(random.integers(1, 31))):
            yield Text(_GROUPS[number % 2], [int(random.integers(20))], f"text {number}")


def _skewed(random: np.random.Generator) -> Iterator[Text]:
    """One name of twenty has 40 % of the mentions of its group; two mentions in each text."""
    chances = np.array([0.4, *[0.6 / 19] * 19])
    for number in range(200):
        yield Text(_GROUPS[number % 2], random.choice(20, 2, p=chances).tolist())


def _single(random: np.random.Generator) -> Iterator[Text]:
    """Every name once, five names of a group in each text."""
    del random
    for number in range(24):
        yield Text(_GROUPS[number % 2], list(range(5 * number, 5 * number + 5)))


def _imbalance(random: np.random.Generator) -> Iterator[Text]:
    """The first group has a twentieth of the texts."""
    for number in range(420):
        yield Text(_GROUPS[number % 21 > 0], [int(random.integers(20))])


def _few_casts(random: np.random.Generator) -> Iterator[Text]:
    """Five names of a group in each of eight texts."""
    for number in range(8):
        yield Text(_GROUPS[number % 2], random.choice(20, 5, replace=False).tolist())


DESIGNS: dict[str, Design] = {
    "independent": _independent,
    "fixed casts": _casts,
    "few texts": _few_casts,
    "12 authors": _authors,
    "near-duplicates": _duplicates,
    "skewed names": _skewed,
    "single mentions": _single,
    "imbalance 1:20": _imbalance,
}


def totals_of(random: np.random.Generator, design: Design, effect: float) -> EntityTotals:
    """One corpus; names are drawn first, so that every effect has the same corpora."""
    found = EntityTotals()
    names = {group: random.normal(scale=_NAME, size=200) for group in _GROUPS}
    clusters: dict[str, float] = {}
    for text in design(random):
        shared = random.normal(scale=_TEXT)
        if text.cluster:
            own = random.normal(scale=_CLUSTER)
            shared += clusters.setdefault(text.cluster, own)
        noise = random.normal(scale=_MENTION, size=len(text.names))
        added = effect if text.group == "A" else 0.0
        amounts = names[text.group][text.names] + shared + noise + added
        mentions = [
            _mention(text.group, name, amount)
            for name, amount in zip(text.names, amounts.tolist(), strict=True)
        ]
        found.add(_STRATUM, mentions, 4.0, cluster=text.cluster)
    return found


def _mention(group: str, name: int, relevance: float) -> Mention:
    return Mention(
        item_id="",
        target=_STRATUM.target,
        rank=0,
        class_name=_STRATUM.class_name,
        group=group,
        entity=f"{group}{name}",
        surface="",
        start=0,
        end=0,
        relevance=relevance,
    )


@dataclass(slots=True)
class Tally:
    """What happened in the corpora so far."""

    corpora: int = 0
    found: int = 0  #: *difference* with the right sign; without an effect with either
    wrong: int = 0
    rejected: int = 0  #: by the permutation alone
    suppressed: int = 0
    seconds: float = field(default_factory=time.perf_counter)

    def count(self, totals: EntityTotals, effect: float, seed: int) -> None:
        """One corpus."""
        rules = Rules(
            reference="B", practical=0.0, permutations=_PERMUTATIONS, bare=True, seed=seed
        )
        row = next(one for one in group_table(totals, rules) if one.group == "A")
        self.corpora += 1
        self.rejected += row.p is not None and row.p <= 0.05
        self.suppressed += row.verdict == "suppressed"
        if row.flagged and row.difference is not None:
            right = effect == 0.0 or row.difference > 0.0
            self.found += right
            self.wrong += not right


def _share(count: int, total: int) -> str:
    low, high = wilson(count, total)
    return f"{100 * count / total:5.1f} % [{100 * low:4.1f}, {100 * high:4.1f}]"


def main() -> None:
    """Parse, simulate, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--corpora", type=int, default=500)
    parser.add_argument("--effects", type=float, nargs="*", default=[0.0, 0.5, 1.0])
    parser.add_argument("--designs", nargs="*", choices=list(DESIGNS), default=list(DESIGNS))
    options = parser.parse_args()
    print(f"{options.corpora} corpora a row, {_PERMUTATIONS} permutations, fixed seeds")
    print(
        f"{'design':17}{'effect':>7}{'difference':>23}{'wrong sign':>12}"
        f"{'names alone':>23}{'suppressed':>12}{'s':>5}"
    )
    for name in options.designs:
        for effect in options.effects:
            tally = Tally()
            for corpus in range(options.corpora):
                random = generator("clusters", name, corpus)
                tally.count(totals_of(random, DESIGNS[name], effect), effect, corpus)
            print(
                f"{name:17}{effect:>7.2f}{_share(tally.found, tally.corpora):>23}{tally.wrong:>12}"
                f"{_share(tally.rejected, tally.corpora):>23}{tally.suppressed:>12}"
                f"{time.perf_counter() - tally.seconds:>5.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
