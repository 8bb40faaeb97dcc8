"""One shape of a model: forward pass and steps, each eager, captured, and compiled and captured."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

import torch
from torch import Tensor

from benchmarks.engine_contenders import FORWARD, forward
from benchmarks.engine_models import LLAMA, Setting, batch_of, build
from benchmarks.gpu_clock import on_card, timed, wait
from benchmarks.gpu_sheet import Figures, Sheet
from transexplain.engine.compiled import compiled, on_device
from transexplain.engine.needed_work import with_value_gradients
from transexplain.engine.replay import Step
from transexplain.engine.traced import Traced, traced
from transexplain.methods.at_input_layer import features_at
from transexplain.methods.relevance import rules_of, step_of
from transexplain.models.loaded_model import Batch, LoadedModel

#: how something runs; of the forward passes the last that works is what ratios are taken to
EAGER, CAPTURED, COMPILED = "eager", "traced and captured", "compiled and captured"
#: other ways to compile: nothing left out; the gradient of the values by a kernel of its own
WHOLE, VALUES = "compiled whole and captured", "compiled with dV alone and captured"
_TITLES = {"bert-base": "BERT-base", "vit-b16": "ViT-B/16", LLAMA: "Llama 1B"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A model and what it is given at once."""

    model: str = "bert-base"
    batch: int
    tokens: int = 128
    methods: tuple[str, ...] = ("lrp",)

    def __str__(self) -> str:
        """As the tables name it."""
        of = "" if self.model == "vit-b16" else f" x {self.tokens}"
        return f"{_TITLES[self.model]} {self.batch}{of}"

    def of(self, setting: Setting) -> Setting:
        """The setting with this shape; toy sizes where it is quick."""
        if setting.quick:
            return replace(setting, batch=min(self.batch, 4), tokens=min(self.tokens, 16))
        return replace(setting, batch=self.batch, tokens=self.tokens)


@cache
def model_of(name: str, setting: Setting) -> LoadedModel:
    """The model, built once for all of its shapes."""
    return build(name, setting)


def of_shape(shape: Shape, setting: Setting) -> "ShapeBench":
    """What is measured of a shape; one model serves all shapes that it has positions for."""
    own = shape.of(setting)
    longest = 8192 if shape.model == LLAMA else 512
    room = replace(own, batch=setting.batch, tokens=max(longest, own.tokens))
    return ShapeBench(shape, own, partial(model_of, shape.model, room))


class ShapeBench:
    """A batch of one shape, its forward pass and its steps, made when they are first needed."""

    def __init__(self, shape: Shape, setting: Setting, made: Callable[[], LoadedModel]) -> None:
        self.shape, self.setting, self.made = shape, setting, made
        self._traces: dict[str, Traced] = {}

    @cached_property
    def model(self) -> LoadedModel:
        """The model of this shape."""
        return self.made()

    @cached_property
    def batch(self) -> Batch:
        """Random items of this shape."""
        return batch_of(self.model, self.setting)

    def step(self, method: str) -> Step:
        """What `te.explain` computes for this batch."""
        at = self.model.default_at
        features = features_at(at, self.batch.encoded[0])
        return step_of(self.model, self.batch, rules_of(method, at, {}), at, features)

    def forward_trace(self) -> tuple[Traced, list[Tensor]]:
        """The forward pass as a graph, and examples of its inputs."""
        names = list(self.batch.inputs)

        def function(*given: Tensor) -> list[Tensor]:
            with torch.no_grad():
                inputs = dict(zip(names, given, strict=False))
                return [self.model.caller(self.model.module, inputs)]

        # nothing of a forward pass waits for a last input
        examples = [*self.batch.inputs.values(), torch.zeros(1, device=self.setting.device)]
        if FORWARD not in self._traces:
            self._traces[FORWARD] = traced(function, examples)
        return self._traces[FORWARD], examples

    def step_trace(self, method: str) -> tuple[Traced, list[Tensor]]:
        """A step as a graph, and examples of its inputs."""
        step = self.step(method)
        if method not in self._traces:
            self._traces[method] = step.traced().traced
        return self._traces[method], step.examples

    def forward_figures(self, kind: str) -> Figures:
        """Milliseconds of a forward pass."""
        if kind == EAGER:
            return self._timed(partial(forward, self.model, self.batch))
        made, examples = self.forward_trace()
        made = ready(made, examples, kind)
        return self._timed(partial(made.begin, *examples[:-1]))

    def step_figures(self, method: str, kind: str) -> Figures:
        """Milliseconds of an explanation of the batch for one class.

        `further` has those of another class, over the same forward pass.
        """
        if kind == EAGER:
            step = self.step(method)
            found = self._timed(partial(explained_eagerly, step))
            return {**found, "further": self._timed(_again(step))}
        made, examples = self.step_trace(method)
        made = ready(made, examples, kind)
        found = self._timed(lambda: made.begin(*examples[:-1]).end(examples[-1]))
        begun = made.begin(*examples[:-1])
        return {**found, "further": self._timed(lambda: begun.end(examples[-1]))}

    def _timed(self, call: Callable[[], object]) -> Figures:
        found = timed(call, self.setting.device, quick=self.setting.quick)
        in_tokens = self.shape.model == LLAMA
        each = self.setting.tokens if in_tokens else 1
        return {
            **found,
            "per_second": 1000 * self.setting.batch * each / found["ms"],
            "unit": "tokens" if in_tokens else "items",
            "shape": [self.setting.batch, self.setting.tokens],
        }


def ready(made: Traced, examples: list[Tensor], kind: str) -> Traced:
    """A trace, compiled if its kind is, and on a card captured."""
    if not made.applies(*examples[:-1]):
        raise RuntimeError("the trace does not apply to what it was traced with")
    if kind == VALUES:
        alone = with_value_gradients(made)
        if alone is None:
            raise RuntimeError("no attention of this step computes the gradient of values alone")
        made = compiled(alone, examples)
    elif kind == WHOLE:
        made = compiled(made, examples, reduced=lambda one: one)
    elif kind == COMPILED:
        made = compiled(made, examples)
    return on_device(made, examples)


def _seed(step: Step, index: int) -> Tensor:
    seed = torch.zeros(step.shape, dtype=torch.float64)
    seed[:, index] = 1.0
    return seed


def explained_eagerly(step: Step) -> Tensor:
    """Relevance (B, T) for the first class."""
    return step.eager().relevance(_seed(step, 0), last=True)


def _again(step: Step) -> Callable[[], Tensor]:
    passes, seed = step.eager(), _seed(step, 1)
    return lambda: passes.relevance(seed)


def kinds_on(device: str) -> tuple[str, ...]:
    """On a CPU nothing is captured, and compiling takes longer than all of the rest."""
    return (EAGER, CAPTURED, COMPILED) if on_card(device) else (EAGER, CAPTURED)


def shape_rows(sheet: Sheet, bench: ShapeBench, kinds: tuple[str, ...]) -> None:
    """The rows of one shape: forward passes, then every method."""
    for kind in kinds:
        sheet.row(str(bench.shape), f"{FORWARD}, {kind}", partial(bench.forward_figures, kind))
    for method in bench.shape.methods:
        step_rows(sheet, bench, method, kinds)


def step_rows(sheet: Sheet, bench: ShapeBench, method: str, kinds: tuple[str, ...]) -> None:
    """The rows of one method: for one class, and for each further class."""
    part = str(bench.shape)
    for kind in kinds:
        measure = partial(related, sheet, part, partial(bench.step_figures, method, kind))
        row = sheet.row(part, f"{method}, {kind}", measure)
        if "further" in row:
            more = related(sheet, part, partial(dict, row["further"], status="measured"))
            sheet.add(part, f"{method}, each further class, {kind}", more)


def related(sheet: Sheet, shape: str, measure: Callable[[], Figures]) -> Figures:
    """The figures with their ratios to the forward passes of the same shape.

    `forwards` is the one to the last way that was measured: compiled and captured, if that works.
    """
    found = measure()
    of = {
        row["row"].removeprefix(f"{FORWARD}, "): found["ms"] / row["ms"]
        for row in sheet.rows
        if row["part"] == shape and row["row"].startswith(FORWARD) and "ms" in row
    }
    return {**found, "forwards": of[list(of)[-1]] if of else None, "forwards_of": of}


def compile_ahead(shape: Shape, what: str, setting: Setting) -> dict[str, float]:
    """Compile the forward pass or a method's step, so that it is in the cache; seconds of each."""
    bench, begun = of_shape(shape, setting), time.perf_counter()
    trace = bench.forward_trace if what == FORWARD else partial(bench.step_trace, what)
    made, examples = trace()
    traced_after = time.perf_counter() - begun
    ready = compiled(made, examples)
    ready.begin(*examples[:-1]).end(examples[-1])
    wait(setting.device)
    return {"tracing": traced_after, "compiling": time.perf_counter() - begun - traced_after}
