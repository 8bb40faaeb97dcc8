"""Explainers on disk: one safetensors file with weights, scales and facts."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from transexplain.atomic_write import atomic_file
from transexplain.errors import ConfigurationError
from transexplain.learned.facts import Facts, read_facts
from transexplain.learned.network import Explainer

NAME = "explainer.safetensors"


def save(explainer: Explainer, facts: Facts, path: Path) -> None:
    """Write `path` whole or not at all."""
    weights = {
        name: tensor.detach().float().cpu().contiguous()
        for name, tensor in explainer.state_dict().items()
    }
    with atomic_file(path) as part:
        save_file(weights, part, metadata=facts.to_metadata())


def load(path: str | Path, *, dtype: torch.dtype, device: torch.device) -> tuple[Explainer, Facts]:
    """The explainer at `path` in eval mode; raises ConfigurationError."""
    facts = read_facts(path)
    explainer = Explainer(facts.architecture)
    try:
        with safe_open(Path(path).expanduser(), framework="pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        explainer.load_state_dict(weights)
    except (SafetensorError, RuntimeError) as error:
        raise ConfigurationError(
            f"the explainer {path} is damaged ({error}); copy it again or train it again"
        ) from None
    return explainer.to(device=device, dtype=dtype).eval().requires_grad_(False), facts
