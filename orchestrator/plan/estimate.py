"""Estimates the cost of an audit: passes by purpose, time here, bytes in the store."""

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.plan.audit_plan import PreparedAudit
from orchestrator.spec.evaluation_section import evaluation_estimate
from orchestrator.spec.method_section import passes
from transexplain.analysis.groups.answers import answers_of
from transexplain.analysis.groups.entity_finder import EntityFinder
from transexplain.analysis.groups.group_cells import references_of
from transexplain.analysis.groups.power import (
    NAME_SPREAD,
    TEXT_SPREAD,
    Precision,
    of_plan,
    of_rates,
)
from transexplain.data.shard_reader import clustering_of, read_shard
from transexplain.methods import cost_of, facts_of
from transexplain.reports.phrasing import counted, nearness
from transexplain.store.columns import bytes_of
from transexplain.store.results import rows_of
from transexplain.store.schema import OF_ITEMS
from transexplain.types.items import Item, ItemFailure
from transexplain.types.plans import AuditPlan, Shard, ShardResult
from transexplain.types.scores import Approximation
from transexplain.types.targets import ClassNames, parse_target

if TYPE_CHECKING:
    from transexplain.explaining import Explained, Request

_SAMPLE = 256  #: rows that lengths and mentions are counted on
_TIMED = 64  #: of these, items that are explained against the clock, after as many to warm up
_LONG_ENOUGH = 3.0  #: seconds after which no further item is timed
#: bytes of a row's keys, numbers and its place in the indices, about
_ROW = 96


@dataclass(frozen=True, kw_only=True, slots=True)
class Passes:
    """Passes through the model that one purpose takes in a whole run."""

    items: float
    forwards: float
    backwards: float
    seconds: float = 0.0  #: on this machine by one process, about

    def summary_text(self) -> str:
        """One line of the table of passes."""
        both = f"{self.forwards:,.0f} forward"
        if self.backwards:
            both += f" and {self.backwards:,.0f} backward"
        return f"{both} passes over {self.items:,.0f} items, about {duration(self.seconds)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CostEstimate:
    """Passes through the model for one item, and for all; what they take here."""

    items: int
    shards: int
    method: str
    unit: str
    source: str
    targets: int  #: explained for every item
    positions: float  #: mean over a sample
    windows: float  #: mean over a sample; 1 where texts are not read in windows
    forwards: float  #: for one item of that length, with all its targets
    backwards: float
    exact: str = ""  #: method of the exact sample, whose mean part is counted above; "": none
    exact_share: float = 0.0  #: of the items
    approximates: Approximation | None = None  #: None: the method computes what it says
    swaps: int = 0  #: forward passes for swapped mentions, all items together
    purposes: Mapping[str, Passes] = field(default_factory=dict)  #: of the whole run
    device: str = ""  #: that the time was measured on
    timed: int = 0  #: items that it was measured on
    bytes: int = 0  #: that the rows of the run take in the store, about
    mentions: Mapping[str, int] = field(default_factory=dict)  #: group -> items, about
    #: group -> effects that nine of ten runs find, and whose absence they show, in words
    power: Mapping[str, str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The estimated seconds of the whole run in one process here."""
        return sum(passes.seconds for passes in self.purposes.values())

    def summary_text(self) -> str:
        """Lines for the terminal."""
        learned = self.approximates
        lines = [
            f"{counted(self.items, 'item')} in {counted(self.shards, 'shard')}, "
            f"{counted(self.targets, 'target')} each, "
            f"{self.positions:.0f} positions on average",
            f"{self.method} ({self.source}), in {self.unit}",
            *([f"approximates {learned.teacher}: {nearness(learned)}"] if learned else []),
            *([f"{self.exact} on {self.exact_share:.1%} of the items"] if self.exact else []),
            f"{self.forwards:g} forward and {self.backwards:g} backward passes an item, "
            f"{self.items * self.forwards:,.0f} and {self.items * self.backwards:,.0f} in all",
            *(f"  {name}: {passes.summary_text()}" for name, passes in self.purposes.items()),
            f"about {duration(self.seconds)} in one process on {self.device} (measured on "
            f"{self.timed} items), about {size(self.bytes)} in the store",
        ]
        if self.mentions:
            counts = ", ".join(f"{group} {count:,}" for group, count in self.mentions.items())
            lines.append(f"items that mention a group, about: {counts}")
        if self.power:
            lines.append(
                "effects that 9 of 10 runs find, and whose absence 9 of 10 show, where swaps move "
                f"texts by {TEXT_SPREAD:g} logit and names by {NAME_SPREAD:g} at random, and rates "
                "are near 50 %:"
            )
            lines += [f"  {group}: {words}" for group, words in self.power.items()]
        return "\n".join(lines)


def estimate(prepared: PreparedAudit) -> CostEstimate:
    """Count the passes that the method declares for an item of mean length; time a batch of items.

    Explains up to 128 items of the data.
    """
    plan = prepared.plan
    rows = Shard(index=0, start=0, stop=min(_SAMPLE, plan.dataset.rows))
    items = [entry for entry in read_shard(plan.dataset, rows) if isinstance(entry, Item)]
    targets = _targets(plan)
    positions, windows = _sizes(prepared, items)
    exact, length = plan.exact, round(positions / windows)
    forwards, backwards = passes(plan.method, exact, length, targets)
    facts = facts_of(plan.method.name)
    timed, forward, backward, stored = _measured(prepared, items)
    mentioned = _mentioned(plan, items)
    mentions = {group: round(share * plan.dataset.rows) for group, share in mentioned.items()}
    purposes = {
        name: Passes(
            items=items,
            forwards=windows * times * cost[0],
            backwards=windows * times * cost[1],
            seconds=windows * times * (cost[0] * forward + cost[1] * backward),
        )
        for name, times, cost, items in _purposes(
            plan, length, targets, min(1.0, sum(mentioned.values()))
        )
    }
    return CostEstimate(
        items=plan.dataset.rows,
        shards=len(prepared.shards),
        method=plan.method.name,
        unit=facts.unit,
        source=facts.source,
        targets=targets,
        positions=positions,
        windows=windows,
        forwards=windows * forwards,
        backwards=windows * backwards,
        exact=exact.method.name if exact else "",
        exact_share=exact.share if exact else 0.0,
        swaps=plan.check.swap_passes if plan.check else 0,
        approximates=plan.approximates,
        purposes=purposes,
        device=prepared.model.ref.device,
        timed=timed,
        bytes=round(stored * plan.dataset.rows),
        mentions=mentions,
        power=dict(_power(plan, mentions, 3 if any(item.label for item in items) else 1)),
    )


def _targets(plan: AuditPlan) -> int:
    names = ClassNames(plan.model.classes, plan.classifications)
    classes, count = len(plan.model.classes), 0
    for target in (parse_target(spec, names) for spec in plan.targets):
        most = {"all": classes, "top": min(target.k, classes)}
        count += most.get(target.kind, 1)
    return count


def _sizes(prepared: PreparedAudit, items: Sequence[Item]) -> tuple[float, float]:
    """Mean positions and mean windows of an item, over a sample."""
    from transexplain.explaining import Request

    encoded = Request.from_plan(prepared.plan).encode(prepared.model, items)
    readable = [item for item in encoded if not isinstance(item, ItemFailure)]
    count = max(1, len(readable))
    positions = sum(item.length for item in readable) / count
    return max(1.0, positions), max(1.0, sum(len(item.windows) or 1 for item in readable) / count)


def _mentioned(plan: AuditPlan, items: Sequence[Item]) -> dict[str, float]:
    """Group -> share of the sample's items that are in it."""
    counts: Counter[str] = Counter()
    if not plan.groups:
        return {}
    finder = EntityFinder(plan)
    for item in finder.in_turn(items):
        if isinstance(item, ItemFailure):
            continue
        counts.update(finder.groups_in(item.text, item.annotations, item.meta, item.second_at))
    return {group: count / len(items) for group, count in counts.items()}


def _power(
    plan: AuditPlan, mentions: Mapping[str, int], rates_each: int
) -> Iterator[tuple[str, str]]:
    """The power of a run, for every group with a lexicon and a reference.

    `rates_each` is the number of rates of one prediction: with labels those of errors, too.
    """
    terms = {group.name: len(group.terms) for group in plan.groups if group.terms}
    swaps = plan.check.swaps if plan.check else {}
    templates = clustering_of(plan.dataset).get("templates", 0)
    compared = {
        group: [other for other in reference.groups if other != group and other in terms]
        for group, reference in references_of(plan.reference, terms).items()
        if reference.name != group
    }
    answers = max(1, len(answers_of(plan)))
    for group, others in compared.items():
        if not others or not mentions.get(group):
            continue
        mentioned, other = (
            sum(mentions.get(name, 0) for name in side) for side in ([group], others)
        )
        swapped = sum(swaps.get(name, 0.0) * mentions.get(name, 0) for name in (group, *others))
        texts = min(swapped, templates) if templates else swapped
        names = min(terms[group], sum(terms[other] for other in others))
        tested = len(compared) * answers
        sample = math.inf if plan.complete else float(names)
        rates = of_rates(plan.matters.rates, mentioned, other, sample, tested * rates_each)
        words = f"outcome {_both(rates, 100, 'points')}"
        if texts:
            effect = of_plan(plan.matters.logit, texts, sample, 4 * tested)
            words = f"mention {_both(effect, 1, 'logit')}; {words}"
        yield group, words


def _both(precision: Precision, scale: int, unit: str) -> str:
    """The effect that is found, and the one whose absence is shown."""
    shows = precision.shows
    absent = "none" if shows is None else f"{scale * shows:.2g}"
    return f"{scale * precision.finds:.2g} and {absent} {unit}"


def _purposes(
    plan: AuditPlan, length: int, targets: int, mentioned: float
) -> Iterator[tuple[str, float, tuple[float, float], float]]:
    """Purpose, times in a whole run, forward and backward passes of each time, and items.

    `length`: positions of an item or window; `mentioned`: share of items in a group.
    """
    rows, one_pass = plan.dataset.rows, (1.0, 0.0)
    method_cost = cost_of(plan.method, length).of(targets)
    yield "explanations", rows, method_cost, rows
    if plan.exact is not None:
        share = plan.exact.share * rows
        yield "exact sample", share, cost_of(plan.exact.method, length).of(targets), share
    if plan.check is not None:
        checked = plan.check.share * rows * mentioned
        if not plan.check.whole:
            yield "mention ablation", checked, one_pass, checked
        if plan.check.swap_passes:
            yield "swaps", plan.check.swap_passes, one_pass, checked
        if plan.check.randomised:
            yield "randomised model", checked, method_cost, checked
    measured = evaluation_estimate(plan)
    if measured is not None:
        yield "faithfulness", measured.passes, one_pass, measured.items


def _measured(prepared: PreparedAudit, items: Sequence[Item]) -> tuple[int, float, float, float]:
    """Explain a sample of the data, with one target pass and with none, against the clock.

    Returns the number of items, the seconds of a forward and of a backward pass of one, and the
    bytes of its rows.
    """
    from transexplain.explaining import Request

    plan = prepared.plan
    request = Request.from_plan(plan)
    step = max(1, len(items) // _TIMED)
    some = list(items[::step][:_TIMED])
    _timed(prepared, some[:8], request)
    ends, seconds = _timed(prepared, some, request)
    done = len(ends)
    _, logits_only = _timed(prepared, some[:done], replace(request, targets=()))
    positions, windows = _sizes(prepared, some[:done])
    cost = cost_of(plan.method, round(positions / windows)).of(_targets(plan))
    whole, logits = seconds / max(1, done) / windows, logits_only / max(1, done) / windows
    if cost[1] and facts_of(plan.method.name).needs_rules:
        forward = min(logits, whole / sum(cost))
        backward = (whole - cost[0] * forward) / cost[1]
    else:  # methods without rules take nothing without targets
        forward = backward = whole / max(1.0, sum(cost))
    return done, forward, backward, _stored(plan, ends)


def _timed(
    prepared: PreparedAudit, items: Sequence[Item], request: "Request"
) -> "tuple[list[Explained], float]":
    """Items explained within some seconds, and how many seconds these took."""
    from transexplain.explaining import explain_items

    ends: list[Explained] = []
    begun = time.perf_counter()
    for start in range(0, len(items), 8):
        ends += explain_items(prepared.model, items[start : start + 8], request)
        if time.perf_counter() - begun > _LONG_ENOUGH:
            break
    return ends, time.perf_counter() - begun


def _stored(plan: AuditPlan, ends: "Sequence[Explained]") -> float:
    """Mean bytes of an item's rows."""
    good = [end for end in ends if end.outcome is not None]
    if not good:
        return 0.0
    outcomes = tuple(
        replace(end.outcome, index=place) for place, end in enumerate(good) if end.outcome
    )
    result = ShardResult(
        shard=Shard(index=0, start=0, stop=len(good)),
        outcomes=outcomes,
        attributions=tuple(each for end in good for each in end.attributions),
        failures=(),
        mentions=(),
        aggregate={},
        seconds=0.0,
    )
    rows = rows_of("", result)
    stored = sum(
        bytes_of(table, rows[table.name]) + _ROW * len(rows[table.name]["idx"])
        for table in OF_ITEMS
    )
    return stored / len(good)


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, as people say them."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 1 else "1 s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"


def size(count: float) -> str:
    """Bytes in the largest unit that leaves a number of at least 1."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
