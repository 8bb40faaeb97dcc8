"""What the table of architectures holds for each of them, and how a tiny random one is made."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

Make = Callable[[], nn.Module]
#: of a constructor; a function where they hold classes of timm, which is imported when it is used
Settings = dict[str, Any] | Callable[[], dict[str, Any]]
Kind = Literal["encoders", "decoders", "encoder-decoders", "image classifiers"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """One model family, small enough to be built and explained in a fraction of a second."""

    name: str
    source: Literal["transformers", "timm"]
    kind: Kind
    make: Make  #: a new module with the library's own initial weights
    picture: tuple[int, int, int] | None = None  #: (3, H, W) in pixels; None: it reads text
    casts: bool = False  #: the model itself computes in float32 somewhere, whatever its type
    single: bool = False  #: runs in float32 only, its own code fails in float64
    gain: float = 1.0  #: on the noise of convolutions, where deep ones let the signal die out
    beside: bool = False  #: the item also bypasses the input layer: two streams, or a decoder

    @property
    def modality(self) -> str:
        """`text` or `image`, as `transexplain.wrap` takes it."""
        return "text" if self.picture is None else "image"

    @property
    def tolerance(self) -> float:
        """The largest gap of the ledger, relative to the sum of its |terms|."""
        return 1e-5 if self.casts or self.single else 1e-12


def from_transformers(
    stem: str, head: str, settings: dict[str, Any], model: str | None = None
) -> Make:
    """The classifier `{stem}For{head}Classification` (or the class `model`) of a configuration."""

    def make() -> nn.Module:
        import transformers

        config = getattr(transformers, f"{stem}Config")(**settings)
        name = model or f"{stem}For{head}Classification"
        module: nn.Module = getattr(transformers, name)(config)
        return module

    return make


def from_timm(name: str, settings: Settings) -> Make:
    """A named timm model with three classes, or `module:Class` of timm's models."""

    def make() -> Any:
        given = settings() if callable(settings) else settings
        if ":" in name:
            module, _, attribute = name.partition(":")
            cls = getattr(importlib.import_module(f"timm.models.{module}"), attribute)
            return cls(num_classes=3, **given)
        import timm

        return timm.create_model(name, pretrained=False, num_classes=3, **given)

    return make


def build(architecture: Architecture) -> nn.Module:
    """The module with the same weights in every process; the caller's random state stays."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        dtype = torch.float32 if architecture.single else torch.float64
        return randomised(architecture.make(), dtype, architecture.gain)


def randomised(
    module: nn.Module, dtype: torch.dtype = torch.float64, gain: float = 1.0
) -> nn.Module:
    """The module in `dtype` and eval mode with noise on every parameter and running statistic.

    No bias is 0, no scale is 1, and no batch norm is the identity.
    """
    generator = torch.Generator().manual_seed(0)

    def noise(like: torch.Tensor, scale: float) -> torch.Tensor:
        return scale * torch.randn(like.shape, generator=generator)

    with torch.no_grad():
        for parameter in module.parameters():
            # by the number of inputs, else a signal dies out or explodes in a deep network
            matrix = parameter.dim() > 1 and parameter.shape[0] > 1
            inputs = parameter[0].numel() if matrix else 25
            scale = gain if parameter.dim() == 4 else 1.0
            parameter.add_(noise(parameter, scale * inputs**-0.5))
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(noise(buffer, 0.3))
            elif name.endswith("running_var"):
                buffer.copy_(0.6 + noise(buffer, 0.5).abs())
    return module.to(dtype).eval()
