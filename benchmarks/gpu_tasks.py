"""What `benchmarks.gpu` measures, in the order of its importance, and what each needs of time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks import gpu_attention, gpu_methods, gpu_precision, gpu_runs, gpu_shapes
from benchmarks.engine_models import LLAMA, Setting
from benchmarks.gpu_clock import on_card
from benchmarks.gpu_sheet import Sheet
from benchmarks.gpu_steps import (
    COMPILED,
    VALUES,
    WHOLE,
    Shape,
    kinds_on,
    of_shape,
    shape_rows,
    step_rows,
)
from benchmarks.gpu_warm import Job, jobs_of


@dataclass(frozen=True, slots=True)
class Task:
    """Some rows that belong together."""

    part: str
    name: str
    seconds: float  #: that it takes on one H100, about
    run: Callable[[Sheet], None]

    @property
    def key(self) -> str:
        """Names it among all tasks."""
        return f"{self.part}: {self.name}"


FULL = Shape(batch=256, methods=("lrp", "attnlrp"))
#: in the order of their importance
SHAPES = (
    FULL,
    Shape(batch=8),
    Shape(model="vit-b16", batch=256),
    Shape(model="vit-b16", batch=8),
    Shape(batch=64),
    Shape(model=LLAMA, batch=8, tokens=512),
    Shape(batch=512, tokens=16),
    Shape(batch=256, tokens=32),
    Shape(batch=128, tokens=64),
)
LONG = (Shape(model=LLAMA, batch=4, tokens=2048), Shape(model=LLAMA, batch=1, tokens=8192))
WARM_AFTER_ALL = 3  #: methods that come after everything else


def tasks_of(setting: Setting) -> list[Task]:
    """All tasks in order."""
    methods = [_method(name, setting) for name in gpu_methods.METHODS]
    return [
        *(_shape(shape, setting, 16) for shape in SHAPES[:5]),
        *(_peers(shape, setting) for shape in (Shape(batch=8), Shape(batch=64))),
        *(_shape(shape, setting, 16) for shape in SHAPES[5:]),
        _precision("bfloat16", setting),
        _attention(setting),
        *methods[:3],
        _batches(setting),
        _runs(setting),
        _left_out(setting, SHAPES[:3]),
        _second_start(setting),
        *(_shape(shape, setting, 25) for shape in LONG),
        _memory(setting),
        *methods[3:-WARM_AFTER_ALL],
        _precision("float16", setting),
        _between(setting),
        *methods[-WARM_AFTER_ALL:],
        _dynamic(setting),
    ]


def warm_jobs(setting: Setting) -> list[Job]:
    """What is compiled beforehand, in the order of the tasks."""
    own, half = Shape(batch=64), setting.dtype
    others = [
        (own, method, half)
        for method in gpu_methods.METHODS
        if method not in gpu_methods.BY_OTHER_PASSES and method != "lrp"
    ]
    return [
        *jobs_of(SHAPES, half),
        (own, "attnlrp", "bfloat16"),
        *others[:2],
        *jobs_of(LONG, half),
        (Shape(batch=1, tokens=8192), "lrp", half),
        (own, "lrp", "float16"),
        (own, "attnlrp", "float16"),
        *others[2:],
    ]


def _shape(shape: Shape, setting: Setting, seconds: float) -> Task:
    kinds = kinds_on(setting.device)

    def run(sheet: Sheet) -> None:
        bench = of_shape(shape, setting)
        shape_rows(sheet, bench, kinds)
        if setting.quick and shape is FULL:  # that this runs too, where there is a compiler
            step_rows(sheet, bench, "lrp", (COMPILED,))

    return Task(str(shape), "all rows", seconds * len(shape.methods), run)


def _peers(shape: Shape, setting: Setting) -> Task:
    name = f"peers, {shape}"
    return Task(name, name, 8, partial(gpu_methods.peer_rows, shape=shape, setting=setting))


def _precision(dtype: str, setting: Setting) -> Task:
    ways = ("eager",) if setting.quick else gpu_precision.WAYS
    methods = gpu_precision.METHODS
    rows = partial(gpu_precision.precision_rows, setting=setting, dtype=dtype)
    return Task(gpu_precision.PART, dtype, 16, partial(rows, ways=ways, methods=methods))


def _between(setting: Setting) -> Task:
    ways = ("replayed",) if setting.quick else gpu_precision.BETWEEN
    rows = partial(gpu_precision.precision_rows, setting=setting, dtype="bfloat16")
    run = partial(rows, ways=ways, methods=("attnlrp",))
    return Task(gpu_precision.PART, "bfloat16, attnlrp, between eager and compiled", 40, run)


def _method(method: str, setting: Setting) -> Task:
    bench = of_shape(Shape(batch=64), setting)
    run = partial(gpu_methods.method_rows, bench=bench, method=method)
    return Task(gpu_methods.PART, method, 12, run)


def _runs(setting: Setting) -> Task:
    texts = 60 if setting.quick else 20_000
    run = partial(gpu_runs.run_rows, setting=setting, texts=texts)
    return Task(gpu_runs.PART, f"{texts} texts", 60, run)


def _left_out(setting: Setting, shapes: Sequence[Shape]) -> Task:
    """Other ways to compile: what it gains to compute only what relevance needs."""

    def run(sheet: Sheet) -> None:
        for shape in shapes:
            if on_card(setting.device):
                step_rows(sheet, of_shape(shape, setting), "lrp", (WHOLE, VALUES))
            else:
                sheet.left_out(str(shape), f"lrp, {VALUES}", "the kernels are those of a GPU")

    return Task(str(shapes[0]), "other ways to compile", 40.0 * len(shapes), run)


def _memory(setting: Setting) -> Task:
    kinds = kinds_on(setting.device)
    run = partial(gpu_precision.memory_rows, setting=setting, tokens=8192, kinds=kinds)
    return Task(gpu_precision.MEMORY, "8192 positions", 25, run)


def _batches(setting: Setting) -> Task:
    def run(sheet: Sheet) -> None:
        gpu_shapes.best_batch_row(sheet, setting, 64 if setting.quick else 16_384)
        gpu_shapes.bucket_rows(sheet, (8_192, 32_768))

    return Task(gpu_shapes.BATCHES, "budget search and buckets", 25, run)


def _second_start(setting: Setting) -> Task:
    def run(sheet: Sheet) -> None:
        gpu_shapes.start_row(sheet, setting, "a second start, alone", Shape(batch=256))

    return Task(gpu_shapes.START, "a second start, alone", 30, run)


def _attention(setting: Setting) -> Task:
    run = partial(gpu_attention.attention_rows, setting=setting)
    return Task(gpu_attention.PART, "all rows", 8, run)


def _dynamic(setting: Setting) -> Task:
    run = partial(gpu_shapes.dynamic_rows, setting=setting, lengths=(16, 64, 128))
    return Task(gpu_shapes.DYNAMIC, "all rows", 45, run)
