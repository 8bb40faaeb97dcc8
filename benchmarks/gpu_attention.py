"""The value's gradient of fused attention alone, beside the fused kernel's three gradients.

With constant attention weights a step needs dV only.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.engine_models import Setting
from benchmarks.gpu_clock import on_card, timed
from benchmarks.gpu_sheet import Figures, Sheet
from transexplain.engine.needed_work import value_gradient

PART = "attention's backward pass"
#: B, H, T, D
SHAPES = ((256, 12, 128, 64), (256, 12, 197, 64), (8, 32, 2048, 64))


def attention_rows(sheet: Sheet, setting: Setting) -> None:
    """Milliseconds of forward, all gradients, and dV alone."""
    for shape in SHAPES:
        size = (2, 2, 16, 8) if setting.quick else shape
        name = "B {}, H {}, T {}, D {}".format(*size)
        sheet.row(PART, f"{name}: forward", partial(_fused, setting, size, backward=False))
        sheet.row(PART, f"{name}: dQ, dK and dV", partial(_fused, setting, size, backward=True))
        sheet.row(PART, f"{name}: dV alone", partial(_alone, setting, size))
        if setting.quick:
            return


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


def _alone(setting: Setting, size: tuple[int, ...]) -> Figures:
    query, key, value, gradient = _made(setting, size)
    kernel = "flash_attention" if on_card(setting.device) else "flash_attention_for_cpu"
    forward = getattr(torch.ops.aten, f"_scaled_dot_product_{kernel}")
    logsumexp = forward(query, key, value)[1]

    def own() -> Tensor:
        given = (query, key, gradient, logsumexp, None, False, None, list(key.stride()))
        found: Tensor = value_gradient(*given)
        return found

    found = timed(own, setting.device, quick=setting.quick)
    exact = [one.float() for one in (query, key, value, gradient)]
    leaf = exact[2].requires_grad_(True)
    out = torch.nn.functional.scaled_dot_product_attention(exact[0], exact[1], leaf)
    (right,) = torch.autograd.grad(out, leaf, exact[3])
    error = float((own().float() - right).abs().max() / right.abs().max())
    return {**found, "error": error, "note": f"largest error against float32 {error:.1e}"}
