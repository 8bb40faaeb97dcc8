"""Verdicts on drawn answers, without a model: eight designs, many corpora each.

    python -m benchmarks.verdict_designs [--corpora 500] [--processes 2]

A corpus is 480 texts about people of two groups (24 names each, with small effects of their own)
and a classifier that is a formula: content, the name, and what the design adds. Swaps put two
names of either group into 100 texts of each. What is true is known: `none`, `imbalance` (one group
twenty times as frequent), `authors` (twelve, each favouring a group and more or less lenient, named
by the data's cluster), `duplicates` (each text six times, known as clusters) and `five names` (of
one group in each text) are unbiased; `direct` moves the answer by -0.5 logit, `proxy` rejects by a
word that goes along with a group, `interaction` moves it by +1 in one stratum and -1 in the other.

Printed: the share of corpora by verdict, with the 95 % Wilson interval of those accused.
"""

import argparse
import multiprocessing
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import get_args

import numpy as np

from transexplain.analysis.groups.answers import Answer
from transexplain.analysis.groups.counterfactuals import Observation, counterfactual_table
from transexplain.analysis.groups.group_cells import references_of
from transexplain.analysis.groups.group_verdicts import Evidence, GroupFinding, group_verdicts
from transexplain.analysis.groups.intervals import wilson
from transexplain.analysis.groups.outcome_totals import OutcomeTotals
from transexplain.analysis.groups.outcomes import outcome_table
from transexplain.types.findings import Practical
from transexplain.types.items import ItemOutcome

TEXTS, NAMES, SWAPPED = 480, 24, 100
CLASSES = ("rejected", "invited")
ANSWER = Answer(name="invited", plus=(1,), minus=(0,))
GROUPS = ("first", "second")
WORDS = get_args(GroupFinding)


@dataclass(frozen=True, kw_only=True, slots=True)
class Design:
    """How answers and groups hang together."""

    direct: float = 0.0  #: logits that a name of the first group adds
    proxy: float = 0.0  #: logits of a word that is in 85 % of the first group's texts, 15 % else
    interaction: float = 0.0  #: logits of the first group in one stratum, and of less in the other
    rare: int = 1  #: the second group is so many times as frequent
    authors: float = 0.0  #: standard deviation of twelve authors' leniency, in logits
    copies: int = 1  #: so many texts are one
    together: int = 1  #: names in each text


DESIGNS: Mapping[str, Design] = {
    "none": Design(),
    "direct": Design(direct=-0.5),
    "proxy": Design(proxy=-3.0),
    "interaction": Design(interaction=1.0),
    "imbalance": Design(rare=20),
    "authors": Design(authors=1.0),
    "duplicates": Design(copies=6),
    "five names": Design(together=5),
}


def verdict_on(name: str, seed: int) -> str:
    """The verdict on one drawn corpus."""
    design, rng = DESIGNS[name], np.random.default_rng([seed, sorted(DESIGNS).index(name)])
    own = 0.05 * rng.normal(size=(2, NAMES))
    leniency = design.authors * rng.normal(size=12)
    totals, observations = OutcomeTotals(), list[Observation]()
    swapped = Counter[int]()
    for text in range(TEXTS // design.copies):
        author = int(rng.integers(12))
        second = rng.random() < design.rare / (1 + design.rare)
        if design.authors:
            second = (rng.random() < 0.85) == bool(author % 2)
        group, stratum = int(second), int(rng.integers(2))
        near = (group == 0) == (rng.random() < 0.85)
        base = 2.0 * rng.normal() + design.proxy * near + leniency[author]
        cast = rng.choice(NAMES, design.together, replace=False)
        sign = 1.0 if stratum else -1.0
        added = np.array([design.direct + sign * design.interaction, 0.0])
        effects = (own + added[:, None]) / design.together
        value = base + effects[group, cast].sum()
        cluster = f"author {author}" if design.authors else ""
        cluster = f"text {text}" if design.copies > 1 else cluster
        slice_ = ("office", "workshop")[stratum] if design.interaction else ""
        for copy in range(design.copies):
            totals.add(_outcome(value), {GROUPS[group]}, answers=(ANSWER,), cluster=cluster)
            if swapped[group] < SWAPPED:
                swapped[group] += 1
                rest = base + effects[group, cast[1:]].sum()
                document = f"{text} {copy}"
                where = {"document": document, "cluster": cluster, "slice": slice_}
                for side in (0, 1):
                    names = rng.choice(NAMES, 2, replace=False)
                    if side == group:
                        names[0] = cast[0]
                    for one in dict.fromkeys(names.tolist()):
                        answer = float(rest + effects[side, one])
                        observations.append(
                            Observation(
                                **where,
                                group=GROUPS[side],
                                entity=f"{side} {one}",
                                predicted=CLASSES[int(answer > 0)],
                                log_odds=(answer,),
                            )
                        )
    references, practical = references_of("second", GROUPS), Practical()
    evidence = Evidence(
        counterfactuals=counterfactual_table(observations, [ANSWER], references, practical),
        outcomes=outcome_table(totals, [ANSWER], CLASSES, references, practical),
        relevance=(),
        found={},
    )
    [found] = group_verdicts(evidence, references, practical)
    return found.verdict


def _outcome(value: float) -> ItemOutcome:
    return ItemOutcome(
        item_id="",
        index=0,
        label=None,
        predicted=CLASSES[int(value > 0)],
        logits=(0.0, float(value)),
        truncated=False,
        positions=1,
    )


def main() -> None:
    """Draw, judge, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--corpora", type=int, default=500, help="of each design")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    print(f"{'design':14}" + "".join(f"{word:>22}" for word in WORDS) + "  accused, 95 %")
    with multiprocessing.Pool(options.processes) as pool:
        for name in DESIGNS:
            found = Counter(pool.map(partial(verdict_on, name), range(options.corpora), 5))
            accused = found["different answers"] + found["different outcomes"]
            low, high = wilson(accused, options.corpora)
            shares = "".join(f"{100 * found[word] / options.corpora:>21.1f}%" for word in WORDS)
            print(f"{name:14}{shares}  {100 * low:.1f} to {100 * high:.1f} %", flush=True)


if __name__ == "__main__":
    main()
