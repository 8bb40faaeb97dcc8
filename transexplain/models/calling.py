"""Calls a module: which inputs its forward takes, and where its output holds the logits."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode

from transexplain.errors import EngineError, ModelLoadError
from transexplain.interpreter import shared
from transexplain.registry import require
from transexplain.types.plans import SPREAD, Modality

#: the input that carries the item, by modality; of graph models it is their first
MAIN_INPUT = {"text": "input_ids", "image": "pixel_values"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """The calling convention of one module, read from its signature."""

    main: str  #: input_ids | pixel_values | the first input of a graph model
    positional: bool  #: the main input goes first, without a name
    names: frozenset[str] | None  #: keyword inputs it takes; None: any
    fixed: Mapping[str, Any]  #: constants of every call

    @classmethod
    def of(cls, module: nn.Module, modality: Modality) -> "Caller":
        """Read the convention of `module.forward`; ModelLoadError for scripted modules."""
        if isinstance(module, torch.jit.ScriptModule):
            raise ModelLoadError(
                f"{type(module).__name__} is a scripted module, whose operators cannot be seen; "
                "pass the module it was scripted from"
            )
        parameters = inspect.signature(module.forward).parameters
        main = MAIN_INPUT.get(modality) or _first_input(module, parameters)
        named = frozenset(
            name
            for name, p in parameters.items()
            if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
        )
        any_name = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        return cls(
            main=main,
            positional=main not in named and (bool(named) or not any_name),
            names=None if any_name and not named else named,
            fixed={"use_cache": False} if "use_cache" in named else {},
        )

    def takes(self, name: str) -> bool:
        """Return whether the module's forward takes the input `name`."""
        return name == self.main or self.names is None or name in self.names

    def __call__(self, module: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
        """Logits (B, C) of one forward pass over `inputs` (each (B, ...))."""
        keywords = {name: tensor for name, tensor in inputs.items() if self.takes(name)}
        first = (keywords.pop(self.main),) if self.positional else ()
        return _logits(module(*first, **keywords, **self.fixed))


def _first_input(module: nn.Module, parameters: Mapping[str, inspect.Parameter]) -> str:
    first = next(iter(parameters.values()), None)
    if first is None or first.kind in (first.VAR_POSITIONAL, first.VAR_KEYWORD):
        raise ModelLoadError(
            f"the forward of {type(module).__name__} does not name its first input, the features "
            "of the nodes (B, T, F); wrap a module whose forward has named parameters"
        )
    return first.name


def _logits(output: Any) -> Tensor:
    if isinstance(output, Tensor):
        return output
    start, end = (getattr(output, f"{name}_logits", None) for name in ("start", "end"))
    if isinstance(start, Tensor) and isinstance(end, Tensor):
        return torch.stack((start, end), dim=-1)  # (B, T, 2) of a model for question answering
    if isinstance(output, Mapping) and "logits" in output:
        logits = output["logits"]
    elif hasattr(output, "logits"):
        logits = output.logits
    else:
        logits = output[0] if isinstance(output, tuple | list) and output else None
    if not isinstance(logits, Tensor):
        raise EngineError(
            f"the module returned {type(output).__name__} without logits; "
            "it must return a tensor (B, C), or an output with `.logits`"
        )
    return logits


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Put `module` in eval mode, with every operator to be seen; afterwards it is as it was.

    What was compiled runs as it was written. Torch's own encoder leaves its nested tensors, which
    no hook and no rule can read, where any mode of functions is on.
    """
    parts = list(module.modules())
    training = [part for part in parts if part.training]
    with ExitStack() as undo:
        if any(map(_is_compiled, parts)):
            undo.enter_context(_eagerly())
        if any(isinstance(part, nn.TransformerEncoder) for part in parts):
            undo.enter_context(BaseTorchFunctionMode())
        if training:
            module.eval()
        try:
            yield
        finally:
            for part in training:
                part.training = True


def _is_compiled(part: nn.Module) -> bool:
    """Return whether torch.compile was called on a module, by its `compile`, or on its forward."""
    forward = vars(part).get("forward")
    return (
        part._compiled_call_impl is not None
        or "_orig_mod" in part._modules
        or hasattr(forward, "_torchdynamo_orig_callable")
    )


@shared
@contextmanager
def _eagerly() -> Iterator[None]:
    with torch.compiler.set_stance("force_eager"):
        yield


def unwrapped(module: nn.Module) -> nn.Module:
    """The module that torch.compile or data parallelism was given."""
    while (inner := module._modules.get(_WRAPPERS.get(type(module).__name__, ""))) is not None:
        module = inner
    return module


#: classes of torch around a module -> where they hold it
_WRAPPERS = {
    "OptimizedModule": "_orig_mod",
    "DataParallel": "module",
    "DistributedDataParallel": "module",
}


def logits_of(module: nn.Module, caller: Caller, inputs: dict[str, Tensor]) -> Tensor:
    """Logits (B, C) of a plain forward pass; ModelLoadError where dropout is on in eval mode."""
    with torch.no_grad(), eval_mode(module), _WithoutDropout():
        return caller(module, inputs)


class _WithoutDropout(TorchFunctionMode):
    """Refuses a model whose every pass gives other numbers."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if "dropout" in getattr(func, "__name__", ""):
            probability, training = (
                kwargs.get(name, args[place] if len(args) > place else default)
                for name, place, default in (("p", 1, 0.5), ("training", 2, True))
            )
            if probability and training and kwargs.get("train", True):
                raise ModelLoadError(
                    f"{func.__name__} is on in eval mode, so each pass gives other numbers: call "
                    "it with training=self.training"
                )
        return func(*args, **kwargs)


DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def torch_dtype(name: str) -> torch.dtype:
    """The torch type called `name`; ModelLoadError names the known ones."""
    if name not in DTYPES:
        raise ModelLoadError(f"unknown dtype {name!r}; known: {', '.join(DTYPES)}")
    return DTYPES[name]


def dtype_name(dtype: torch.dtype) -> str:
    """The name of `dtype` in a ModelRef."""
    return str(dtype).removeprefix("torch.")


def torch_device(name: str) -> torch.device:
    """The torch device called `name`; ModelLoadError where this machine has none such."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ModelLoadError(
            f"unknown device {name!r}; use cpu, cuda or cuda:N, or {SPREAD} for all CUDA devices"
        ) from error
    if device.type != "cpu":
        count = _count(device.type)
        if (device.index or 0) >= count:
            kind = device.type.upper()
            seen = "".join(f", {device.type}:{index}" for index in range(count))
            raise ModelLoadError(
                f"device {name!r} is not there: torch sees {count} {kind} device(s){seen}; use "
                f"device={'one of these or ' if count else ''}'cpu'"
            )
    return device


def _count(kind: str) -> int:
    """The number of accelerators of a kind that torch sees."""
    try:
        module = torch.get_device_module(kind)
    except RuntimeError:  # no accelerator, such as meta
        return 0
    return int(module.device_count()) if module.is_available() else 0


def place_of(name: str) -> torch.device | None:
    """The device of this name; None: all cards, for `spread`.

    Raises ModelLoadError where this machine has none such, ConfigurationError where `spread` is
    requested and accelerate is not installed.
    """
    if name != SPREAD:
        return torch_device(name)
    cards()
    require("accelerate", "large")
    return None


def cards() -> dict[str, int]:
    """The CUDA devices and the free memory of each in bytes; ModelLoadError where there is none."""
    count = _count("cuda")
    if not count:
        raise ModelLoadError(
            f"device {SPREAD!r} is for CUDA devices, and torch sees none; use device='cpu'"
        )
    return {f"cuda:{index}": torch.cuda.mem_get_info(index)[0] for index in range(count)}
