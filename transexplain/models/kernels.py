"""Which attention kernel a model's own code asks for."""

from torch import nn


def attention_kernel(module: nn.Module) -> str:
    """`sdpa`, `eager`, ... as transformers names it, or as timm's switches say; "": neither."""
    named = getattr(getattr(module, "config", None), "_attn_implementation", None)
    if isinstance(named, str):
        return named
    fused = {bool(part.fused_attn) for part in module.modules() if hasattr(part, "fused_attn")}
    names = {True: "sdpa", False: "eager"}
    return " and ".join(sorted(names[one] for one in fused))
