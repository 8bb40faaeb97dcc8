"""The value's gradient of fused attention alone, beside the fused kernel's three gradients.

With constant attention weights a step needs dV only. The row of the engine's own kernel is left out
where the engine has none.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from benchmarks.engine_models import Setting
from benchmarks.gpu_clock import timed
from benchmarks.gpu_sheet import Figures, Sheet

PART = "attention's backward pass"
#: module and function of the engine: (query, key, value, gradient) (B, H, T, D) -> dV
SUPPORT = ("transexplain.engine.value_gradient", "value_gradient")
#: B, H, T, D
SHAPES = ((256, 12, 128, 64), (256, 12, 197, 64), (8, 32, 2048, 64))


def attention_rows(sheet: Sheet, setting: Setting) -> None:
    """Milliseconds of forward, all gradients, and dV alone."""
    for shape in SHAPES:
        size = (2, 2, 16, 8) if setting.quick else shape
        name = "B {}, H {}, T {}, D {}".format(*size)
        sheet.row(PART, f"{name}: forward", partial(_fused, setting, size, backward=False))
        sheet.row(PART, f"{name}: dQ, dK and dV", partial(_fused, setting, size, backward=True))
        own = _support()
        if own is None:
            sheet.left_out(PART, f"{name}: dV alone", f"there is no {'.'.join(SUPPORT)}")
        else:
            sheet.row(PART, f"{name}: dV alone", partial(_alone, setting, size, own))
        if setting.quick:
            return


def _support() -> Callable[..., Tensor] | None:
    try:
        found: Callable[..., Tensor] = getattr(import_module(SUPPORT[0]), SUPPORT[1])
    except (ImportError, AttributeError):
        return None
    return found


def _made(setting: Setting, size: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(0)
    dtype = getattr(torch, setting.dtype)
    return [torch.randn(size, device=setting.device).to(dtype) for _ in range(4)]


def _fused(setting: Setting, size: tuple[int, ...], *, backward: bool) -> Figures:
    query, key, value, gradient = _made(setting, size)
    attention = partial(torch.nn.functional.scaled_dot_product_attention, query, key, value)
    if not backward:
        return timed(attention, setting.device, quick=setting.quick)
    leaves = [one.requires_grad_(True) for one in (query, key, value)]
    out = attention()

    def gradients() -> Any:
        return torch.autograd.grad(out, leaves, gradient, retain_graph=True)

    return timed(gradients, setting.device, quick=setting.quick)


def _alone(setting: Setting, size: tuple[int, ...], own: Callable[..., Tensor]) -> Figures:
    *operands, gradient = _made(setting, size)
    found = timed(lambda: own(*operands, gradient), setting.device, quick=setting.quick)
    value = operands[2].float().requires_grad_(True)
    query, key = (one.float() for one in operands[:2])
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    (right,) = torch.autograd.grad(out, value, gradient.float())
    error = float((own(*operands, gradient).float() - right).abs().max() / right.abs().max())
    return {**found, "error": error, "note": f"largest error against float32 {error:.1e}"}
