"""Verdicts on drawn corpora whose truth is known: who is accused, who is cleared.

    python -m benchmarks.verdicts [--corpora 40] [--designs NAME ...] [--advice 40]

Designs are those of `verdict_designs`: the cases that a verdict once got wrong, further biased and
further sound ones. *Biased* is a question whose truth is at least 1.5 times a limit, in all texts
or in a stratum, for any class; *sound* is it where nothing exceeds half of a limit. Printed for
each design: the truth in units of the limits, how often either question is answered *yes*, *no* or
left open, and totals. Then how often 95 % intervals hold the truth, and how often advice, followed
once by a new corpus of the size that it asks for, settles what was open.
"""

import argparse
import multiprocessing
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from benchmarks.verdict_designs import (
    DESIGNS,
    OPEN,
    Truth,
    compared,
    evidence_of,
    truth_of,
)
from transexplain.analysis.groups.group_cells import references_of
from transexplain.analysis.groups.group_verdicts import GroupVerdict, group_verdicts
from transexplain.analysis.groups.intervals import wilson
from transexplain.analysis.groups.verdict_sentences import mention_factor, outcome_factor

ANSWERS = {
    "changes": "yes",
    "differ": "yes",
    "does not change": "no",
    "do not differ": "no",
    "open": "open",
}
#: designs for the coverage of intervals
COVERED = (
    "none, two groups",
    "half of the limit",
    "names differ much",
    "noisy texts",
    "direct -0.3, four groups",
    "none, labels",
    "12 authors",
    "each text six times",
    "1 to 20",
    "rare class",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A design, its truth, and the verdicts on its corpora."""

    name: str
    truth: Truth
    verdicts: Sequence[Sequence[GroupVerdict]]  #: of every corpus, the first group first

    def counts(self, question: str) -> Counter[str]:
        """How often a question is answered yes, no or left open; of several groups by the first
        where it may be treated otherwise, else by any: yes before open before no.
        """
        several = [self.answers(groups, question) for groups in self.verdicts]
        return Counter(
            next(word for word in ("yes", "open", "no") if word in answers) for answers in several
        )

    def answers(self, groups: Sequence[GroupVerdict], question: str) -> set[str]:
        """The answers that count of one corpus."""
        judged = groups[:1] if self.says(question) == "biased" else groups
        return {ANSWERS[getattr(verdict, question)] for verdict in judged}

    def says(self, question: str) -> str:
        """Whether the question's truth is biased, sound or between."""
        return self.truth.of_mention if question == "mention" else self.truth.of_outcome

    @property
    def clear(self) -> int:
        """How many corpora are cleared of everything."""
        return sum(groups[0].state == "clear" for groups in self.verdicts)


def verdicts_on(name: str, seed: int) -> list[GroupVerdict]:
    """The verdicts on one drawn corpus."""
    design = DESIGNS[name]
    return group_verdicts(evidence_of(design, seed), references_of(design.named[-1], design.named))


def table(judged: Sequence[Judged]) -> Iterator[str]:
    """A line for each design."""
    yield (
        f"{'design':32}{'truth':>16}{'mention: yes':>16}{'no':>6}{'open':>6}{'outcome: yes':>16}"
        f"{'no':>6}{'open':>6}{'clear':>7}"
    )
    for one in judged:
        mention, outcome = one.counts("mention"), one.counts("outcome")
        truth = f"{one.truth.mention:.2f}, {one.truth.outcome:.2f}"
        yield (
            f"{one.name:32}{truth:>16}{mention['yes']:>16}{mention['no']:>6}{mention['open']:>6}"
            f"{outcome['yes']:>16}{outcome['no']:>6}{outcome['open']:>6}{one.clear:>7}"
        )


def totals(judged: Sequence[Judged]) -> Iterator[str]:
    """The figures that the goals are set for."""
    cleared = Counter[str]()
    corpora = Counter[str]()
    worst = Counter[str]()
    for one in judged:
        for question in ("mention", "outcome"):
            says, counts = one.says(question), one.counts(question)
            if says == "biased":
                cleared[question] += counts["no"]
                corpora[question] += counts.total()
            elif says == "sound":
                worst[f"{one.name}, {question}"] = counts["yes"]
        if "biased" in (one.truth.of_mention, one.truth.of_outcome):
            cleared["in all"] += one.clear
            corpora["in all"] += len(one.verdicts)
    for what, number in corpora.items():
        yield _share(f"biased and cleared, {what}", cleared[what], number)
    for what, number in worst.most_common(3):
        yield _share(f"sound and accused, most: {what}", number, len(judged[0].verdicts))
    none = [one.counts("mention") for one in judged if one.name.startswith("none,")]
    settled = sum(counts["no"] for counts in none)
    yield _share(
        "none, two to four groups: mention settled", settled, sum(map(Counter.total, none))
    )


def covered(name: str, seed: int) -> list[tuple[str, bool]]:
    """Whether 95 % intervals of one corpus hold the truth."""
    design = DESIGNS[name]
    truth = _TRUTHS.setdefault(name, truth_of(design)).values
    swaps, rates = compared(design, seed)
    held = []
    for comparisons in (swaps[0][1], rates[0][1]):
        for comparison in comparisons:
            value, precision = truth.get(comparison.name), comparison.precision
            if value is not None and precision is not None:
                low, high = (
                    precision.like.interval()
                    if comparison.name in ("logit", "probability")
                    else comparison.outside(0.95)
                )
                held.append((comparison.name, low <= value <= high))
    return held


def followed(name: str, seed: int) -> tuple[float | None, bool] | None:
    """What the advice on an open corpus asks for, and whether a new one of that size settles it.

    None: it was not open.
    """
    question, design = OPEN[name]
    references = references_of(design.named[-1], design.named)
    evidence = evidence_of(design, seed)
    group = design.named[0]
    if getattr(group_verdicts(evidence, references)[0], question) != "open":
        return None
    if question == "mention":
        swaps = [row for row in evidence.counterfactuals if row.group == group]
        factor = mention_factor(swaps, design.names)
    else:
        rates = [row for row in evidence.outcomes if row.group == group]
        factor = outcome_factor(rates, design.names)
    if factor is None or factor > _MOST_FOLLOWED:
        return factor, False
    again = evidence_of(design.larger(factor, question), 10_000 + seed)
    return factor, getattr(group_verdicts(again, references)[0], question) != "open"


_MOST_FOLLOWED = 150.0  #: times as many texts
_TRUTHS: dict[str, Truth] = {}  #: of a process


def _share(what: str, count: int, total: int) -> str:
    if not total:
        return f"{what}: none to judge"
    low, high = wilson(count, total)
    return f"{what}: {count} of {total} ({100 * low:.1f} to {100 * high:.1f} %)"


def main() -> None:
    """Draw, judge, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--corpora", type=int, default=40, help="of each design")
    parser.add_argument("--designs", nargs="*", choices=list(DESIGNS), default=list(DESIGNS))
    parser.add_argument("--coverage", type=int, default=400, help="corpora of each design")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--advice", type=int, default=40, help="corpora of each open design")
    options = parser.parse_args()
    seeds = range(options.corpora)
    with multiprocessing.Pool(options.processes) as pool:
        truths = pool.map(truth_of, [DESIGNS[name] for name in options.designs], 1)
        judged = [
            Judged(name=name, truth=truth, verdicts=pool.map(partial(verdicts_on, name), seeds, 4))
            for name, truth in zip(options.designs, truths, strict=True)
        ]
        for line in (*table(judged), "", *totals(judged), ""):
            print(line, flush=True)
        for name in COVERED if options.coverage else ():
            held = pool.map(partial(covered, name), range(1000, 1000 + options.coverage), 20)
            flat = [pair for corpus in held for pair in corpus]
            totals_of = Counter(measure for measure, _ in flat)
            inside = Counter(measure for measure, holds in flat if holds)
            shares = (f"{name_} {100 * inside[name_] / n:.1f} %" for name_, n in totals_of.items())
            print(f"95 % intervals, {name}: {', '.join(shares)}", flush=True)
        for name in OPEN if options.advice else ():
            results = pool.map(partial(followed, name), range(options.advice), 2)
            tried = [result for result in results if result is not None]
            advised = [(factor, settled) for factor, settled in tried if factor is not None]
            line = _share(f"advice, {name}", sum(settled for _, settled in advised), len(advised))
            factors = [factor for factor, _ in advised] or [0.0]
            print(
                f"{line}, median {median(factors):.1f} times as many; the list is too short in "
                f"{len(tried) - len(advised)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
