"""What an audit would cost, from a sample of its items."""

from dataclasses import dataclass

from orchestrator.plan import Prepared
from transexplain.data.reader import read_shard
from transexplain.evaluations import Approximation
from transexplain.methods import cost_of, facts_of
from transexplain.metrics import curve_of, metric_facts
from transexplain.plans import AuditPlan, Shard
from transexplain.reports.approximating import nearness
from transexplain.targets import ClassNames, parse_target
from transexplain.types import Item, ItemFailure

_SAMPLE = 256  # rows that lengths are measured on
_TYPICAL = 32  # positions, where only the order of magnitude matters


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """Passes through the model for one item, and for all."""

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

    def spoken(self) -> str:
        """Three lines for the terminal, one more for an exact sample and for an explainer."""
        told = self.approximates
        near = f"approximates {told.teacher}: {nearness(told)}\n" if told else ""
        swaps = f"\n{self.swaps:,} more forward passes swap mentions" if self.swaps else ""
        sample = f"{self.exact} on {self.exact_share:.1%} of the items\n" if self.exact else ""
        return (
            f"{self.items:,} items in {self.shards:,} shards, {self.targets} target(s) each, "
            f"{self.positions:.0f} positions on average\n"
            f"{self.method} ({self.source}), in {self.unit}\n{near}{sample}"
            f"{self.forwards:g} forward and {self.backwards:g} backward passes an item, "
            f"{self.items * self.forwards:,.0f} and {self.items * self.backwards:,.0f} in all"
            f"{swaps}"
        )


def estimate(prepared: Prepared) -> Estimate:
    """Count what the method declares for an item of mean length."""
    plan = prepared.plan
    names = ClassNames(plan.model.classes, plan.classifications)
    kinds = [parse_target(spec, names) for spec in plan.targets]
    classes = len(plan.model.classes)
    counts = {"all": classes}
    targets = sum(
        min(one.k, classes) if one.kind == "top" else counts.get(one.kind, 1) for one in kinds
    )
    positions, windows = _sizes(prepared)
    forwards, backwards = cost_of(plan.method, round(positions / windows)).of(targets)
    exact = plan.exact
    if exact is not None:
        more = cost_of(exact.method, round(positions / windows)).of(targets)
        forwards, backwards = forwards + exact.share * more[0], backwards + exact.share * more[1]
    facts = facts_of(plan.method.name)
    return Estimate(
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
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationEstimate:
    """What an evaluation asks of the model."""

    items: int
    methods: int
    metrics: int
    passes: float  #: forwards and backwards, in all; metrics that explain again not counted

    def spoken(self) -> str:
        """A line for the terminal."""
        return (
            f"{self.methods} methods and {self.metrics} metrics on {self.items:,} items: about "
            f"{self.passes:,.0f} passes through the model"
        )


def evaluation_estimate(plan: AuditPlan) -> EvaluationEstimate | None:
    """Count what methods declare and curves ask; None where nothing is evaluated."""
    asked = plan.evaluation
    if asked is None:
        return None
    items = min(plan.dataset.rows, asked.items or plan.dataset.rows)
    passes = 0.0
    for method in asked.methods:
        mine = min(items, method.items or items)
        passes += mine * sum(cost_of(method.method, _TYPICAL).of(1))
        for metric in asked.metrics:
            if metric_facts(metric.name).kind == "curve":
                passes += min(mine, metric.items or mine) * len(curve_of(metric).shares)
    return EvaluationEstimate(
        items=items,
        methods=len(asked.methods),
        metrics=len(asked.metrics),
        passes=passes * len(asked.targets),
    )


def _sizes(prepared: Prepared) -> tuple[float, float]:
    """Mean positions and mean windows of an item, over a sample."""
    plan = prepared.plan
    rows = Shard(index=0, start=0, stop=min(_SAMPLE, plan.dataset.rows))
    items = [entry for entry in read_shard(plan.dataset, rows) if isinstance(entry, Item)]
    from transexplain.explaining import Request

    encoded = Request.from_plan(plan).encode(prepared.model, items)
    readable = [one for one in encoded if not isinstance(one, ItemFailure)]
    count = max(1, len(readable))
    positions = sum(one.length for one in readable) / count
    return max(1.0, positions), max(1.0, sum(len(one.windows) or 1 for one in readable) / count)
