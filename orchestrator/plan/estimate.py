"""What an audit would cost, from a sample of its items."""

from dataclasses import dataclass

from orchestrator.plan.audit_plan import Prepared
from orchestrator.spec.method_section import passes
from transexplain.data.shard_reader import read_shard
from transexplain.methods import facts_of
from transexplain.reports.approximating import nearness
from transexplain.types.items import Item, ItemFailure
from transexplain.types.plans import Shard
from transexplain.types.scores import Approximation
from transexplain.types.targets import ClassNames, parse_target

_SAMPLE = 256  # rows that lengths are measured on


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
        learned = self.approximates
        near = f"approximates {learned.teacher}: {nearness(learned)}\n" if learned else ""
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
    exact = plan.exact
    forwards, backwards = passes(plan.method, exact, round(positions / windows), targets)
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
