"""The pretrained language-model head of an encoder: from hidden vectors to the vocabulary."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from transexplain.errors import ConfigurationError
from transexplain.files.paths import local_path
from transexplain.models.assemble import placed
from transexplain.models.hub import check_header, fetch, fetchable, quiet, weight_files
from transexplain.models.loaded_model import LoadedModel

_REMEDY = (
    "give head= the directory (or .safetensors file, or hub id) of the masked language model that "
    "the encoder was pretrained as"
)


#: logits (B, T, V) over the vocabulary for hidden vectors (B, T, D) of the encoder
LMHead = Callable[[Tensor], Tensor]


@torch.no_grad()
def _decoded(module: nn.Module, hidden: Tensor) -> Tensor:
    """As `LMHead`, by the language model around a stand-in for its encoder."""
    try:
        logits: Tensor = module(inputs_embeds=hidden).logits
    except (AttributeError, TypeError) as error:  # it requests another output of its encoder
        raise ConfigurationError(
            f"{type(module).__name__} reads more than the hidden vectors of its encoder "
            f"({error}); choose a method that needs no head"
        ) from error
    return logits


class _StandIn(nn.Module):
    """An encoder that returns its input."""

    def forward(self, *_args: Any, inputs_embeds: Tensor, **_inputs: Any) -> Any:
        """The hidden vectors (B, T, D) as an encoder's output."""
        from transformers.modeling_outputs import BaseModelOutput

        return BaseModelOutput(last_hidden_state=inputs_embeds)


def lm_head(model: LoadedModel, head: str | None = None) -> LMHead:
    """The language-model head that fits the encoder of `model`, read once per model.

    The head is the code that the installed transformers runs after the encoder of this type. Its
    weights come from `head` (a directory, a .safetensors file or a hub id), else from the
    classifier's own files, where some checkpoints keep them unused. A decoder matrix that is not
    there is the word embedding: that of the head's own file, else the classifier's.

    Raises ConfigurationError where there is none, it is incomplete or of other shapes, and
    ModelLoadError for files that cannot or must not be read (pickles are refused).
    """
    where = head if head is not None else model.ref.source
    head_of: LMHead | None = model.heads.get(where)
    if head_of is None:  # two threads may both read it: they read the same
        head_of = model.heads[where] = _read(model, where, given=head is not None)
    return head_of


def head_names(config: Any) -> frozenset[str]:
    """Names of the weights of the language-model head of `config`; empty where it has none."""
    try:
        return frozenset(_skeleton(config)[1]) if _has_head(config) else frozenset()
    except ConfigurationError:
        return frozenset()


def _has_head(config: Any) -> bool:
    from transformers.models.auto import modeling_auto

    kind = getattr(config, "model_type", None)
    encoder_only = not getattr(config, "is_encoder_decoder", False)
    return encoder_only and kind in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES


#: name in the head -> names it may have in a file
Aliases = dict[str, tuple[str, ...]]


def _skeleton(config: Any) -> tuple[nn.Module, Aliases, str]:
    """A masked language model without weights and encoder; last the name of its matrix (V, D).

    Built on the meta device, so that nothing is drawn or held. Raises ConfigurationError.
    """
    from transformers import AutoModelForMaskedLM

    try:
        with quiet(), torch.device("meta"):
            module = AutoModelForMaskedLM.from_config(config, trust_remote_code=False).eval()
        words = module.get_input_embeddings().weight
        matrix = module.get_output_embeddings().weight
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"the language-model head of {config.model_type} cannot be built: {error}; choose "
            "a method that needs no head"
        ) from error
    named = dict(module.named_parameters(remove_duplicate=False))
    setattr(module, module.base_model_prefix, _StandIn())
    own = module.state_dict(keep_vars=True)
    decoder = next(name for name, value in own.items() if value is matrix)
    aliases = {
        name: (name, *(other for other in named if other != name and named[other] is value))
        for name, value in own.items()
    }
    if len(own) > 1:  # a missing matrix is the word embedding
        aliases[decoder] += tuple(name for name in named if named[name] is words)
    return module, aliases, decoder


def _read(model: LoadedModel, where: str, *, given: bool) -> LMHead:
    config = getattr(model.module, "config", None)
    if not _has_head(config):
        kind = getattr(config, "model_type", type(model.module).__name__)
        raise ConfigurationError(
            f"{model.ref.source} ({kind}) is no encoder that the installed transformers pretrains "
            "with a masked language-model head; choose a method that needs no head"
        )
    module, aliases, decoder = _skeleton(config)
    weights = _weights(_files(where, given=given), aliases)
    if not (set(weights) - {decoder} or weights.keys() == aliases.keys()):
        names = ", ".join(sorted(aliases))
        raise ConfigurationError(
            f"{where} holds no language-model head: looked for {names}; {_REMEDY}"
        )
    # a decoder that is not there is tied to the classifier's words
    words = getattr(next(iter(model.sites.embeddings), None), "weight", None)
    if decoder not in weights and isinstance(words, Tensor):
        weights[decoder] = words.detach()
    expected: Mapping[str, Tensor] = module.state_dict()
    missing = sorted(expected.keys() - weights.keys())
    wrong = [
        f"{name} is {tuple(weights[name].shape)}, the encoder's {tuple(expected[name].shape)}"
        for name in sorted(weights)
        if weights[name].shape != expected[name].shape
    ]
    if missing or wrong:
        faults = [f"it lacks {', '.join(missing)}"] if missing else []
        raise ConfigurationError(
            f"the language-model head at {where} does not fit {model.ref.source}: "
            f"{'; '.join([*faults, *wrong])}; {_REMEDY}"
        )
    dtype, device = placed(model.module)
    ready = {
        name: value.to(device, dtype if value.is_floating_point() else value.dtype)
        for name, value in weights.items()
    }
    module.load_state_dict(ready, assign=True)
    return partial(_decoded, module.requires_grad_(False))


def _files(where: str, *, given: bool) -> tuple[Path, ...]:
    folder = local_path(where)
    if folder.is_file() and folder.suffix == ".safetensors":
        check_header(folder)
        return (folder,)
    if folder.is_dir():
        return weight_files(folder)
    if fetchable(where) and (given or "/" in where):
        return weight_files(fetch(where, remedy=_REMEDY)[0])
    what = "is no directory, .safetensors file or hub id" if given else "was not read from files"
    raise ConfigurationError(f"no language-model head: {where} {what}; {_REMEDY}")


def _weights(files: tuple[Path, ...], aliases: Aliases) -> dict[str, Tensor]:
    """The head's tensors in `files`, by their names in the head; nothing else is read."""
    weights: dict[str, Tensor] = {}
    places: dict[str, Path] = {}
    for path in files:
        with safe_open(path, framework="pt") as file:
            places.update(dict.fromkeys(file.keys(), path))
    for name, others in aliases.items():
        alias = next((alias for alias in others if alias in places), None)
        if alias is not None:
            with safe_open(places[alias], framework="pt") as file:
                weights[name] = file.get_tensor(alias)
    return weights
