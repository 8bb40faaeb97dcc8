"""The JSON files of a model directory: checked before any library reads them.

Whoever wrote the directory is not trusted. Its files may say numbers, switches and names; nothing
in them may run code, open a file elsewhere or ask for more than its weights can fill.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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
#: an old key that nothing opens, often with a path of the machine that saved the tokenizer
_NEVER_OPENED = "special_tokens_map_file"

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
    for path in sorted(folder.iterdir()):
        _check_bytes(path)
    for name in _CHECKED:
        if (folder / name).is_file():
            _check(folder / name, read_json(folder / name))
    return read_json(folder / _CONFIG)


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
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path} cannot be read as JSON: {error}") from error
    except RecursionError as error:
        raise _too_deep(path) from error
    if not isinstance(found, dict):
        raise ModelLoadError(f"{path} holds no JSON object")
    return found


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
    return tokenizer and key.endswith(("_file", "_files")) and key != _NEVER_OPENED


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
