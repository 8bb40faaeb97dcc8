"""What strategy discovery found, in sentences with the numbers behind them."""

from collections.abc import Iterator, Sequence

from transexplain.reports.evaluation.wording import probability
from transexplain.reports.records import Statement
from transexplain.reports.wording import named, spoken, things
from transexplain.strategies.records import (
    ClassStrategies,
    Cluster,
    RegionEvidence,
    Strategies,
    WordEvidence,
)


def headline(found: Strategies, classes: Sequence[str]) -> tuple[Statement, ...]:
    """The sentences at the top: what looks like a shortcut first."""
    return tuple(_headline(found, classes))


def _headline(found: Strategies, classes: Sequence[str]) -> Iterator[Statement]:
    clustered = [one for one in found.classes if one.clusters]
    for one in clustered:
        for cluster in one.clusters:
            if cluster.suspicions:
                name = spoken(found.target, one.class_name, classes)
                said = suspicion(cluster, found.modality)
                lead = f"{name}: cluster {cluster.number} of {len(one.clusters)}"
                if len(one.clusters) == 1:
                    lead = f"{name}, whose explanations are all alike,"
                yield Statement(kind="flagged", text=f"{lead} looks like a shortcut. {said}")
    if clustered and not any(cluster.suspicions for o in clustered for cluster in o.clusters):
        where = "one rare word" if found.modality == "text" else "one corner or at one border"
        yield Statement(
            kind="clear",
            text=f"No cluster stands out: in none does so much of the evidence lie in {where} that "
            "it looks like a shortcut.",
        )
    yield from _counts(found, clustered, classes)


def _counts(
    found: Strategies, clustered: Sequence[ClassStrategies], classes: Sequence[str]
) -> Iterator[Statement]:
    def name(one: ClassStrategies) -> str:
        return spoken(found.target, one.class_name, classes)

    several = [one for one in clustered if len(one.clusters) > 1]
    if several:
        counts = named([f"{name(one)} ({len(one.clusters)})" for one in several])
        yield Statement(kind="fact", text=f"Classes with several strategies: {counts}.")
    alike = [name(one) for one in clustered if len(one.clusters) == 1]
    if alike:
        yield Statement(kind="fact", text=f"One strategy each: {named(alike)}.")
    few = [f"{name(one)} ({one.sampled})" for one in found.classes if not one.clusters]
    if few:
        yield Statement(kind="unknown", text=f"Too few items to be clustered: {named(few)}.")
    drawn = [one for one in found.classes if one.sampled < one.items]
    if drawn:
        yield Statement(
            kind="fact",
            text=f"Drawn with seed {found.seed}, at most {found.sample:,} of a class: "
            + named([f"{name(one)} {one.sampled:,} of {one.items:,}" for one in drawn])
            + ".",
        )
    if found.omitted:
        count = f"{found.omitted} rarer {'class' if found.omitted == 1 else 'classes'}"
        yield Statement(kind="fact", text=f"{count} not looked at; ask for one with --class.")


def suspicion(cluster: Cluster, modality: str) -> str:
    """Why a cluster looks like a shortcut: its strongest evidence, with its numbers."""
    strongest = cluster.suspicions[0]
    size = things(modality, cluster.size)
    if isinstance(strongest, RegionEvidence):
        return _of_region(strongest, size)
    return _of_word(strongest, size, cluster)


def _of_region(evidence: RegionEvidence, size: str) -> str:
    where = f"{'at' if 'border' in evidence.region else 'in'} the {evidence.region}"
    return (
        f"In its {size}, {percent(evidence.share)} of what speaks for the class lies {where}, "
        f"which is {percent(evidence.area)} of the picture; in all others "
        f"{percent(evidence.elsewhere or 0.0)} ({probability(evidence.adjusted_p)})."
    )


def _of_word(evidence: WordEvidence, size: str, cluster: Cluster) -> str:
    return (
        f"In its {size}, {percent(evidence.share)} of what speaks for the class is the word "
        f"\u201c{evidence.word}\u201d, which is in {percent(evidence.documents / cluster.size)} of "
        f"them and in {percent(evidence.corpus_share)} of all texts "
        f"({probability(evidence.adjusted_p)})."
    )


def percent(share: float) -> str:
    """A share as a sentence writes it; what is not nothing is not written as 0."""
    digits = 0 if share >= 0.1 or share == 0.0 else 1
    if 0.0 < share < 0.0005:
        return "less than 0.1\u00a0%"
    return f"{100 * share:.{digits}f}\u00a0%"
