"""Gathers the samples of one scrape, and hands them out as families in the table's order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeHistogramMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from orchestrator.monitoring.exported_metrics import METRICS, PREFIX, Kind, MetricFacts
from transexplain.store.fleet_figures import Histogram

_LONGEST = 200  #: characters of a label
_FAMILIES: Mapping[Kind, Callable[..., Any]] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
    "gaugehistogram": GaugeHistogramMetricFamily,
}
_FACTS = {facts.name: facts for facts in METRICS}


class MetricSamples:
    """The samples of one scrape."""

    def __init__(self) -> None:
        self._families: dict[str, Any] = {name: _family(one) for name, one in _FACTS.items()}

    def put(self, name: str, value: float, *labels: str) -> None:
        """One sample of a gauge or a counter; `labels` in the table's order."""
        self._families[name].add_metric(_labels(_FACTS[name], labels), value)

    def put_histogram(
        self, name: str, found: Histogram, bounds: Sequence[float], *labels: str
    ) -> None:
        """One histogram."""
        ends = [*map(floatToGoString, bounds), "+Inf"]
        buckets = list(zip(ends, map(float, found.counts), strict=True))
        self._families[name].add_metric(_labels(_FACTS[name], labels), buckets, found.total)

    def families(self, names: Sequence[str] | None = None) -> Iterator[Metric]:
        """Every family, those without samples too, or those of these names."""
        yield from (self._families[name] for name in names or _FACTS)


def _family(facts: MetricFacts) -> Any:
    return _FAMILIES[facts.kind](f"{PREFIX}{facts.name}", facts.about, labels=facts.labels)


def _labels(facts: MetricFacts, given: Sequence[str]) -> list[str]:
    """Values that can be written, whatever a name holds."""
    assert len(facts.labels) == len(given), facts.name
    return [one[:_LONGEST].encode("utf-8", "replace").decode() for one in given]
