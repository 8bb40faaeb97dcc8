"""An operator rule: `torch.lerp`, a weighted mean of two tensors."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from transexplain.engine.operator_call import Call

if TYPE_CHECKING:
    from transexplain.engine.mode import RelevanceMode


def lerp(mode: "RelevanceMode", call: Call) -> Any:
    """The mean in parts: each part has a rule already, which books its constants."""
    return mode.again(_in_parts, call)


def _in_parts(input: Tensor, end: Tensor, weight: Tensor | float) -> Tensor:  # torch's own names
    return input + weight * (end - input)
