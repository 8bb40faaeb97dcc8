"""Which number type and which device a model is put on."""

import torch

from transexplain.errors import ModelLoadError

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
        raise ModelLoadError(f"unknown device {name!r}; use cpu, cuda or cuda:N") from error
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise ModelLoadError(
                f"device {name!r} is not there: torch sees {count} CUDA device(s); use device='cpu'"
            )
    return device
