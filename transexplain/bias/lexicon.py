"""Lexicon files: named groups of terms, in YAML or JSON."""

import gzip
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from transexplain.bias.words import pieces
from transexplain.errors import LexiconError
from transexplain.types import EntityGroup

_SUFFIXES = (".yaml", ".yml", ".json")


def load_lexicon(path: Path | str) -> tuple[EntityGroup, ...]:
    """Read entity groups, `group: [terms]` or `group: {source: ..., terms: [...]}`.

    The file is YAML or JSON by its suffix, plain or `.gz`. A term listed twice in a group counts
    once.

    Raises:
        LexiconError: the file cannot be read, a group is given twice or has no terms, or a term
            is not text.
    """
    path = Path(path)
    content = _parse(path)
    if not isinstance(content, dict) or not content:
        raise LexiconError(f"{path}: expected a mapping of group names to lists of terms")
    return tuple(_group(path, name, body) for name, body in content.items())


def _parse(path: Path) -> Any:
    name = path.name.lower().removesuffix(".gz")
    if not name.endswith(_SUFFIXES):
        known = ", ".join(_SUFFIXES)
        raise LexiconError(f"{path}: a lexicon is one of {known}, plain or .gz")
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.name.lower().endswith(".gz") else data).decode()
    except (OSError, EOFError, zlib.error) as error:
        raise LexiconError(f"{path}: cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise LexiconError(f"{path}: not UTF-8 ({error}); save it as UTF-8") from error
    try:
        if name.endswith(".json"):
            return json.loads(text, object_pairs_hook=_once)
        return yaml.load(text, Loader=_Loader)  # a SafeLoader, see below
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise LexiconError(f"{path}: {error}") from error


def _group(path: Path, name: Any, body: Any) -> EntityGroup:
    if not isinstance(name, str) or not name.strip():
        raise LexiconError(f"{path}: group name {name!r} is not text; put it in quotes")
    source: Any = ""
    terms = body
    if isinstance(body, dict):
        unknown = body.keys() - {"source", "terms"}
        if unknown:
            raise LexiconError(
                f"{path}: group {name!r} has unknown keys {sorted(map(str, unknown))}; "
                "known: source, terms"
            )
        source, terms = body.get("source") or "", body.get("terms")
    if not isinstance(terms, list) or not terms:
        raise LexiconError(f"{path}: group {name!r} needs a list of at least one term")
    if not isinstance(source, str):
        raise LexiconError(f"{path}: the source of group {name!r} is not text; put it in quotes")
    return EntityGroup(name=name, terms=tuple(_distinct(path, name, terms)), source=source)


def _distinct(path: Path, group: str, terms: list[Any]) -> Iterable[str]:
    seen: set[str] = set()
    for term in terms:
        if not isinstance(term, str):
            raise LexiconError(
                f"{path}: group {group!r}: term {term!r} was read as {type(term).__name__}, "
                "not text; put it in quotes"
            )
        spelling = " ".join(term.split())
        if not pieces(spelling):
            raise LexiconError(f"{path}: group {group!r} has an empty term")
        if spelling not in seen:
            seen.add(spelling)
            yield spelling


def _once(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """A mapping that refuses to lose a group that is written twice."""
    found: dict[Any, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key!r} is given twice; join the two lists")
        found[key] = value
    return found


class _Loader(yaml.SafeLoader):
    """Safe loading, and no mapping key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        self.flatten_mapping(node)
        pairs = []
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, list | dict):
                raise ValueError(f"{key!r} cannot be a name; put it in quotes")
            pairs.append((key, self.construct_object(value_node, deep=deep)))
        return _once(pairs)
