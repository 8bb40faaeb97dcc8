"""Checks the JSON files of a model directory before any library reads them, and bounds the size of
the model that they describe.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import safe_open
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from transexplain.errors import ModelLoadError

_CONFIG = "config.json"
#: what transformers reads beside the weights, and is parsed and checked here
_CHECKED = (
    _CONFIG,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "preprocessor_config.json",
    "processor_config.json",
    "generation_config.json",
)
_MEGABYTE = 1 << 20
#: vocabularies (the largest of today is 35 MB) and the list of the weights
_LARGE = re.compile(
    r"(tokenizer|added_tokens|vocab)\.json|(vocab|merges)\.txt|.*\.(model|index\.json)"
)
_LARGE_BYTES, _SMALL_BYTES = 256 * _MEGABYTE, 16 * _MEGABYTE
_DEPTH = 32  # of objects and lists in each other; transformers' own configurations have 5
_SIDES = frozenset({"size", "height", "width", "shortest_edge", "longest_edge", "crop_size"})
_SIDE = 4096  #: pixels of a picture that a processor makes

#: key -> what a file that has it asks for, and what to do instead; none or false asks for nothing
_REFUSED = {
    "auto_map": "asks to run code of its own, which is never done; use a model that the installed "
    "transformers knows, or load it yourself and use wrap",
    "quantization_config": "asks for packed weights, which another library unpacks; save the model "
    "unpacked (dequantize and save_pretrained)",
    "transformers_weights": "names another file of weights than the digest covers; call it "
    "model.safetensors",
    "gguf_file": "names a file to read instead of the tokenizer; save the tokenizer with "
    "save_pretrained",
    "init_inputs": "gives the tokenizer files by position; save it with save_pretrained",
    "fusion_config": "asks to patch the model's classes; remove it",
    "kernel_config": "names code to fetch; remove it",
    "use_kernels": "asks for code to fetch; remove it",
    "backbone": "names a model to fetch; save the model with its backbone's own configuration",
    "use_pretrained_backbone": "asks for weights to fetch; set it to false",
}
#: key -> the names that it may give, and what they are names of
_NAMED = {
    "tokenizer_class": (r"(?!Auto|Rag)\w*(Tokenizer(Fast)?|Backend)", "tokenizer class"),
    "image_processor_type": (r"(?!Auto)\w*Processor(Fast|Pil)?", "image processor"),
    "feature_extractor_type": (r"(?!Auto)\w*(FeatureExtractor|Processor)(Fast)?", "processor"),
    **dict.fromkeys(
        ("dtype", "torch_dtype"),
        (r"auto|(torch\.)?(b?float\d+(_\w+)?|u?int\d+|float|double|half|bool)", "number type"),
    ),
}
_KERNELS = re.compile(r"_*(attn|experts)_impl.*")
#: an old key that nothing reads, often with a path of the machine that saved the tokenizer
_NEVER_READ = "special_tokens_map_file"

#: numbers that a loop in Python runs to before there is any tensor that could be counted
_REPEATED = re.compile(r"(.*_)?(layers?|depths?|blocks?|stages?|levels|repeats)(_.*)?")
_NOT_REPEATED = re.compile(r".*(size|dim|width|scale|ratio|eps|rate|value|init|norm|chans|_id)s?")
_COUNTED = re.compile(r"(.*_)?(n|num|number)_.*|.*(labels|classes|heads|channels|hashes|buckets).*")
_NOT_COUNTED = re.compile(r".*(vocab|position|ctx|token|param|train|sample|step|epoch).*")
_MOST_REPEATED, _MOST_COUNTED = 1 << 12, 1 << 20
#: ids and classes by name: their keys are a user's own words
_OWN_WORDS = frozenset({"id2label", "label2id"})


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json` of a model directory, after every check of all that would be read beside it.

    Raises ModelLoadError for a missing or unreadable file, one too large or too deep, a key that
    asks for code, files or weights from elsewhere, and numbers that no model has.
    """
    adapter = (folder / "adapter_config.json").is_file()
    if not (folder / _CONFIG).is_file():
        what = "; it is a PEFT adapter: merge it into its model first" if adapter else ""
        raise ModelLoadError(
            f"{folder} holds no config.json{what}. Expected: config.json, model.safetensors and "
            "the tokenizer or image processor files"
        )
    if adapter:
        raise ModelLoadError(f"{folder} holds a PEFT adapter: merge it into its model first")
    _check_links(folder)
    for path in sorted(folder.iterdir()):
        _check_bytes(path)
    for name in _CHECKED:
        if (folder / name).is_file():
            _check(folder / name, read_json(folder / name))
    return read_json(folder / _CONFIG)


def _check_links(folder: Path) -> None:
    """Refuse a link that leads out of the folder; the hub's cache keeps its files beside it."""
    home = folder.resolve()
    cached = home.parent.name == "snapshots" and home.parents[1] / "blobs"
    for path in (*folder.glob("*"), *folder.glob("*/*")):
        place = path.resolve() if path.is_symlink() else home
        if not place.is_relative_to(home) and not (cached and place.is_relative_to(cached)):
            raise ModelLoadError(
                f"{path} is a link to {place}, outside of the model's folder; put the file itself "
                "there, or give the folder that it lies in"
            )


def _check_bytes(path: Path) -> None:
    """Refuse a file that libraries would read whole and that is far too large for what it is."""
    large = _LARGE.fullmatch(path.name) is not None
    if not (large or path.name in _CHECKED or path.suffix == ".jinja") or not path.is_file():
        return
    size, most = path.stat().st_size, _LARGE_BYTES if large else _SMALL_BYTES
    if size > most:
        raise ModelLoadError(
            f"{path} has {size / _MEGABYTE:,.0f} MB; {most / _MEGABYTE:,.0f} MB at most are read"
        )


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; ModelLoadError names the file otherwise."""
    _check_bytes(path)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path} cannot be read as JSON: {error}") from error
    except RecursionError as error:
        raise _too_deep(path) from error
    if not isinstance(config, dict):
        raise ModelLoadError(f"{path} holds no JSON object")
    return config


def _too_deep(path: Path) -> ModelLoadError:
    return ModelLoadError(f"{path} has more than {_DEPTH} levels of objects and lists")


def _check(path: Path, content: Mapping[str, Any]) -> None:
    for key, value in _entries(content, path):
        if value in (None, False, "", [], {}):
            continue
        _check_key(path, key, value)
        if not isinstance(value, str):
            _check_number(path, key, value)


def _entries(content: Mapping[str, Any], path: Path) -> Iterator[tuple[str, Any]]:
    """Every key and value at any depth; the members of a list under the list's key."""
    waiting: list[tuple[str, Any, int]] = [("", content, 0)]
    while waiting:
        key, value, depth = waiting.pop()
        if depth > _DEPTH:
            raise _too_deep(path)
        if key:
            yield key, value
        if key in _OWN_WORDS:
            continue
        if isinstance(value, Mapping):
            waiting += [(str(name), inner, depth + 1) for name, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(key, inner, depth + 1) for inner in value]


def _check_key(path: Path, key: str, value: Any) -> None:
    if key in _REFUSED:
        raise ModelLoadError(f"{path}: {key} {_REFUSED[key]}")
    if _KERNELS.fullmatch(key) and "/" in str(value):
        raise ModelLoadError(f"{path}: {key} names code to fetch: {value!r}")
    if key in _NAMED and isinstance(value, str):
        pattern, what = _NAMED[key]
        if re.fullmatch(pattern, value) is None:
            raise ModelLoadError(f"{path}: {key} is {value!r}, which is no name of a {what}")
    if _names_a_file(path, key) and isinstance(value, str | Mapping | Sequence):
        raise ModelLoadError(
            f"{path}: {key} names a file to read ({str(value)[:80]!r}); files are found by their "
            "usual names in the directory: remove the key"
        )


def _names_a_file(path: Path, key: str) -> bool:
    tokenizer = path.name in ("tokenizer_config.json", "special_tokens_map.json")
    return tokenizer and key.endswith(("_file", "_files")) and key != _NEVER_READ


def _check_number(path: Path, key: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    most = _most(path.name, key)
    if most is not None and value > most:
        raise ModelLoadError(
            f"{path}: {key} is {value:,}, which is more than any model has ({most:,})"
        )


def _most(file: str, key: str) -> int | None:
    """The largest number that `key` may have in a file; None: its tensors are counted instead."""
    if file in ("preprocessor_config.json", "processor_config.json"):
        return _SIDE if key in _SIDES else None
    if file != _CONFIG:
        return None
    if _REPEATED.fullmatch(key) and not _NOT_REPEATED.fullmatch(key):
        return _MOST_REPEATED
    return _MOST_COUNTED if _COUNTED.fullmatch(key) and not _NOT_COUNTED.fullmatch(key) else None


#: a model is built, read and filled, so each of its weights may be made this often
_TIMES = 8
#: beside the weights: masks, tables of positions, weights that two modules share in the file
_SPARE_TENSORS, _SPARE_NUMBERS = 1 << 10, 1 << 28


def size_of(weights: Mapping[str, Tensor]) -> tuple[int, int]:
    """The number of tensors, and of all their numbers."""
    return len(weights), sum(weight.numel() for weight in weights.values())


def size_in_files(files: Iterable[Path]) -> tuple[int, int]:
    """As `size_of`, by the headers of safetensors files; no tensor is read."""
    sizes = []
    for path in files:
        with safe_open(path, framework="pt") as file:
            sizes += [prod(file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118
    return len(sizes), sum(sizes)


class Budget(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, more or larger tensors than the weights can fill are not made.

    What a call would make is worked out before it runs. Raises ModelLoadError there.
    """

    def __init__(self, size: tuple[int, int], where: str) -> None:
        """`size` as of `size_of`."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._where, self._size = where, size
        self._tensors = _TIMES * size[0] + _SPARE_TENSORS
        self._numbers = _TIMES * size[1] + _SPARE_NUMBERS

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run `func` where there is room for what it makes."""
        given = kwargs or {}
        if not func._schema.is_mutable:
            if any(isinstance(value, Tensor) for value in _flat((*args, *given.values()))):
                self._check(_made(func, *tree_map_only(Tensor, _on_meta, (args, given))))
            else:
                new = _new(func, args, given)
                self._check(new)
                self._tensors -= len(new)
                self._numbers -= sum(new)
        return func(*args, **given)

    def _check(self, made: list[int]) -> None:
        if len(made) > self._tensors or sum(made) > self._numbers:
            raise ModelLoadError(
                f"{self._where}: the configuration asks for a far larger model than its weights "
                f"are ({self._size[0]:,} tensors of {self._size[1]:,} numbers); "
                "compare the numbers of layers, widths and positions with the model's own"
            )


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from value
        else:
            yield value


def _new(func: Any, args: Any, kwargs: Mapping[str, Any]) -> list[int]:
    """The size of each tensor that a call without tensors would make."""
    if args and isinstance(args[0], list | tuple) and all(type(size) is int for size in args[0]):
        return [prod(args[0])]  # empty, zeros, full: nearly all of them
    return _made(func, args, {**kwargs, "device": "meta"})


def _made(func: Any, args: Any, kwargs: Mapping[str, Any]) -> list[int]:
    """The size of each tensor that a call would make; empty where torch cannot tell."""
    try:
        output = func(*args, **kwargs)
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        return []  # the call itself says what is wrong
    return [leaf.numel() for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]


def _on_meta(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")


#: how a language model gives its answer
LanguageKind = Literal["causal", "masked", "encoder-decoder"]


def kind_of_class(name: str) -> LanguageKind | None:
    """The kind of language model that a class of transformers is, by its name; None: none."""
    from transformers.models.auto import modeling_auto

    known: dict[LanguageKind, Any] = {
        "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        "encoder-decoder": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    }
    # one class may stand in several tables: BART's writes, and fills in masks
    order: tuple[LanguageKind, ...] = ("encoder-decoder", "causal", "masked")
    return next((kind for kind in order if name in known[kind].values()), None)
