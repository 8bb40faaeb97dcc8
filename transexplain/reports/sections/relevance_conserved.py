"""Whether an audit's relevance is conserved: do the ledgers close, does it sum to the logit?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from transexplain.reports.charts import Drawing
from transexplain.reports.phrasing import percent, power
from transexplain.reports.redaction import RedactionRules, empty, kept
from transexplain.reports.report_section import Statement
from transexplain.reports.scatter import scatter_drawing
from transexplain.store import results
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun


@dataclass(frozen=True, kw_only=True, slots=True)
class Conservation:
    """Over all attributions with a ledger: whether its ledgers close, and whether relevance is
    conserved, that is, sums to the logit over all positions (Ali et al. 2022, section 6.1).
    """

    attributions: int
    worst: float  #: largest |gap| / sum of |terms|
    mean: float
    worst_item: str
    tolerance: float | None  #: for this number type; None: measured, not judged
    above: int  #: attributions above the tolerance; 0 where there is none
    average: Mapping[str, float]  #: ledger entry -> mean over attributions, in the unit
    average_size: Mapping[str, float]  #: the same of absolute values
    relevance_error: float | None = None  #: mean |logit - sum of relevance| / |logit|
    correlation: float | None = None  #: Pearson's, of logit and sum of relevance
    #: logit and sum of relevance of attributions evenly spaced over the data
    points: tuple[tuple[float, float], ...] = ()

    @property
    def size_shares(self) -> Mapping[str, float]:
        """Ledger entry -> its share of the mean sizes of all entries; empty where all are 0."""
        whole = sum(self.average_size.values())
        return {entry: size / whole for entry, size in self.average_size.items() if whole}


#: largest acceptable |gap| / sum of |terms|, by number type (half precision is only measured)
TOLERANCES = {"float64": 1e-12, "float32": 5e-6}
_ENTRIES = ("inputs", "special", "embeddings", "biases", "rules")
#: relevance is said to sum to the logit where the mean of |logit - sum| / |logit| is not above it
CONSERVED = 0.05
#: rows of the data in the scatter: so many places, and so many rows at each
_PLACES, _ROWS = 16, 32


def conservation_of(db: Database, run: AuditRun) -> Conservation | None:
    """whether the ledgers close and relevance is conserved; None where there is no ledger."""
    tolerance = TOLERANCES.get(run.plan.model.dtype)
    found = results.conservation(db, run.id, tolerance)
    if found is None:
        return None
    relevance = results.relevance_sums(db, run.id)
    return Conservation(
        attributions=found.n,
        worst=found.max_relative_gap,
        mean=found.mean_relative_gap,
        worst_item=found.worst_item,
        tolerance=tolerance,
        above=found.above,
        average={entry: found.sums[entry] / found.n for entry in _ENTRIES},
        average_size={entry: found.absolute[entry] / found.n for entry in _ENTRIES},
        relevance_error=relevance.error,
        correlation=relevance.correlation,
        points=tuple(results.relevance_points(db, run.id, _some_rows(run.plan.dataset.rows))),
    )


def _some_rows(rows: int) -> list[range]:
    """All rows of a small dataset, else evenly spaced ones, whatever its shards are."""
    if rows <= _PLACES * _ROWS:
        return [range(rows)]
    places = [rows * place // _PLACES for place in range(_PLACES)]
    return [range(first, first + _ROWS) for first in places]


def conservation_chart(found: Conservation) -> Drawing | None:
    """Sum of relevance over logit, an attribution a point; None where there are too few."""
    return scatter_drawing(
        found.points,
        titles=("explained logit", "sum of relevance"),
        label=f"Sum of relevance over the explained logit of {len(found.points)} explanations; on "
        "the dashed line both are equal.",
    )


def conservation_sentences(found: Conservation) -> Iterator[Statement]:
    """whether the ledgers close, and whether relevance sums to the logit."""
    yield _books(found)
    yield from _conserved(found)


def _books(found: Conservation) -> Statement:
    """Whether relevance and what is booked beside it make up the logits."""
    if found.tolerance is None:
        return Statement(
            kind="fact",
            text="The ledgers close: relevance, constants and what rules lost make up the logit to "
            f"{power(found.worst)} of the terms (half precision: measured, not judged).",
        )
    if found.above:
        return Statement(
            kind="problem",
            text=f"The ledgers of {found.above:,} of {found.attributions:,} explanations do not "
            f"close: the worst gap is {power(found.worst)} of its terms, the tolerance "
            f"{power(found.tolerance)}. Do not rely on them.",
        )
    return Statement(
        kind="good",
        text="The ledgers close for every explanation: relevance, constants and what rules lost "
        f"make up the logit. The worst gap is {power(found.worst)} of its terms, the tolerance "
        f"{power(found.tolerance)}.",
    )


def _conserved(found: Conservation) -> Iterator[Statement]:
    """Whether the relevance of the positions alone sums to the logits."""
    if found.relevance_error is None:
        return
    holds = "sums" if found.relevance_error <= CONSERVED else "does not sum"
    related = (
        f", their correlation {found.correlation:.2f}" if found.correlation is not None else ""
    )
    shares = found.size_shares
    beside = ", ".join(f"{name} {percent(shares[name])}" for name in _ENTRIES if shares.get(name))
    yield Statement(
        kind="fact",
        text=f"The relevance of all positions by itself {holds} to the logit: they differ by "
        f"{percent(found.relevance_error)} of the logit on average{related}"
        + (f". Shares of the sizes in the ledgers: {beside}." if beside else "."),
    )


CONSERVATION_RULES = RedactionRules(
    fields={
        "worst_item": empty(""),
        "points": empty(()),
        **kept("attributions worst mean tolerance above average average_size"),
        **kept("relevance_error correlation"),
    }
)
