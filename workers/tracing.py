"""OpenTelemetry spans of a shard, from its claim to its commit; off until the environment asks.

The standard variables ask: an endpoint (`OTEL_EXPORTER_OTLP_ENDPOINT`, or `..._TRACES_ENDPOINT`)
switches tracing on, `OTEL_SDK_DISABLED=true` and `OTEL_TRACES_EXPORTER=none` keep it off. Spans go
out by OTLP over HTTP in a thread of their own. They hold ids, counts and names of stages: no text
of an item, no label, no message of an error.
"""

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

from transexplain.errors import installing
from transexplain.store.runs import Claim
from transexplain.types.observer import Observer
from transexplain.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SERVICE = "transexplain-worker"  #: unless OTEL_SERVICE_NAME says otherwise
_KEY = "transexplain."  #: how names of attributes begin
_FLUSH = 5_000  #: milliseconds that the end of a worker waits for what is not sent yet
_NOTHING: AbstractContextManager[None] = nullcontext()
_BEGINNING = threading.Lock()


def is_wanted(variables: Mapping[str, str]) -> bool:
    """Return whether the standard variables request traces."""
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = variables.get("OTEL_TRACES_EXPORTER") or "otlp"
    by_otlp = "otlp" in (exporter.strip() for exporter in exporters.split(","))
    return by_otlp and any(variables.get(name) for name in _ENDPOINTS)


@cache
def _tracing() -> "tuple[TracerProvider, Tracer] | None":
    """The tracer of this process; None: not wanted, or the packages are missing, with a warning."""
    if not is_wanted(os.environ):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        reason = installing("tracing")
        log.warning("OTEL_EXPORTER_OTLP_ENDPOINT is set, but nothing is traced: %s", reason)
        return None
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: _SERVICE}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider, provider.get_tracer("transexplain", __version__)


def _tracer() -> "Tracer | None":
    with _BEGINNING:  # two threads would make two
        begun = _tracing()
    return begun and begun[1]


def is_on() -> bool:
    """Return whether spans are made."""
    return _tracer() is not None


def flush() -> None:
    """Send what is not sent yet; a receiver that is away is waited for a few seconds."""
    if (begun := _tracing()) is not None:
        begun[0].force_flush(_FLUSH)


def _attributes(known: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{_KEY}{name}": value for name, value in known.items()}


def span(name: str, **known: Any) -> AbstractContextManager[None]:
    """A block that is a span, below the one that is under way in this context."""
    tracer = _tracer()
    return _NOTHING if tracer is None else _span(tracer, name, known)


@contextmanager
def _span(tracer: "Tracer", name: str, known: Mapping[str, Any]) -> Iterator[None]:
    with tracer.start_as_current_span(
        name,
        attributes=_attributes(known),
        record_exception=False,  # its message may quote an item
        set_status_on_exception=False,
    ) as current:
        try:
            yield
        except BaseException:
            _fail(current)
            raise


def _fail(current: "Span") -> None:
    from opentelemetry.trace import StatusCode

    current.set_status(StatusCode.ERROR)


def note(**known: Any) -> None:
    """Add attributes to the span that is under way in this context."""
    if is_on():
        from opentelemetry.trace import get_current_span

        get_current_span().set_attributes(_attributes(known))


@contextmanager
def shard_trace() -> "Iterator[ShardTrace]":
    """A block that claims a shard and works on it."""
    trace = ShardTrace(_tracer())
    try:
        yield trace
    except BaseException:
        if trace.root is not None:
            _fail(trace.root)
        raise
    finally:
        if trace.root is not None:
            from opentelemetry import context

            trace.root.end()
            context.detach(trace.attached)


class ShardTrace:
    """The span of a shard, which begins with the attempt to claim it; without a claim none is."""

    def __init__(self, tracer: "Tracer | None") -> None:
        self._tracer = tracer
        self._begun = time.time_ns()
        self.root: Span | None = None  #: where spans are made, after the claim
        self.attached: Any = None

    def claimed(self, claim: Claim, worker: str) -> None:
        """Note the claim; everything from here on lies below its span."""
        if self._tracer is None:
            return
        from opentelemetry import context, trace

        known = {
            "run": claim.run_id,
            "shard": claim.shard.index,
            "attempt": claim.attempt,
            "worker": worker,
            "items": claim.shard.stop - claim.shard.start,
        }
        self.root = self._tracer.start_span(
            "shard", context.Context(), attributes=_attributes(known), start_time=self._begun
        )
        below = trace.set_span_in_context(self.root)
        self._tracer.start_span("claim", below, start_time=self._begun).end()
        self.attached = context.attach(below)

    def ended(self, end: str) -> None:
        """Note the end of the attempt."""
        if self.root is not None:
            self.root.set_attributes(_attributes({"end": end}))
            if end == "failed":
                _fail(self.root)


@contextmanager
def batches(observer: Observer) -> Iterator[Observer]:
    """A block whose observer makes a span of each batch, below that which is under way."""
    tracer = _tracer()
    if tracer is None:
        yield observer
        return
    watch = _TracedBatches(tracer, observer)
    try:
        yield watch
    finally:
        watch.end()


class _TracedBatches:
    """An observer that tells another, and begins and ends spans."""

    def __init__(self, tracer: "Tracer", observer: Observer) -> None:
        self._tracer, self._observer = tracer, observer
        self._span: Span | None = None
        self._left: set[str] = set()

    def batch_started(self, item_ids: Sequence[str]) -> None:
        self._begin("batch", item_ids)
        self._observer.batch_started(item_ids)

    def check_started(self, item_ids: Sequence[str]) -> None:
        self._begin("check", item_ids)
        self._observer.check_started(item_ids)

    def item_done(self, *item_ids: str) -> None:
        self._observer.item_done(*item_ids)
        if self._left:
            self._left.difference_update(item_ids)
            if not self._left:
                self.end()

    def should_stop(self) -> bool:
        return self._observer.should_stop()

    def end(self) -> None:
        """End the span of the batch before, if it is not over."""
        if self._span is not None:
            self._span.end()
            self._span = None

    def _begin(self, name: str, item_ids: Sequence[str]) -> None:
        self.end()
        self._left = set(item_ids)
        self._span = self._tracer.start_span(name, attributes=_attributes({"items": len(item_ids)}))
