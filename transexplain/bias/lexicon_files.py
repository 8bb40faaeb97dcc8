"""Lexicon files as they lie on the disk: YAML, JSON or CSV, read into one mapping of groups."""

import csv
import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from transexplain.errors import LexiconError
from transexplain.plans import SourceFile

#: what names a lexicon that comes with the software, e.g. `builtin:gender`
BUILTIN = "builtin:"
_TREES = (".yaml", ".yml", ".json")
_TABLES = {".csv": ",", ".tsv": "\t"}
_COLUMNS = ("group", "term", "entity", "ambiguous", "source")
#: words of a cell `ambiguous`; an empty cell leaves it to the list of ordinary words
_FLAGS: dict[str, Any] = {
    **dict.fromkeys(("yes", "true", "1", "name"), True),
    **dict.fromkeys(("no", "false", "0"), False),
    "place": "place",
}


def read_lexicon(source: Path | str) -> dict[Any, Any]:
    """The groups of a file by name, or of `builtin:NAME`; their bodies are not checked yet.

    Raises:
        LexiconError: it cannot be read, holds no groups, or names one twice.
    """
    if str(source).startswith(BUILTIN):
        name, text = _shipped(str(source).removeprefix(BUILTIN))
    else:
        name, text = str(source).lower().removesuffix(".gz"), _text(Path(source))
    try:
        content = _parse(name, text)
    except (ValueError, RecursionError, csv.Error, yaml.YAMLError) as error:
        raise LexiconError(f"{source}: {error}") from error
    if not isinstance(content, dict) or not content:
        raise LexiconError(f"{source}: expected a mapping of group names to lists of terms")
    return content


def lexicon_file(source: Path | str) -> SourceFile:
    """The digest of a lexicon's bytes, by its absolute path or as `builtin:NAME`.

    Raises LexiconError where it cannot be read.
    """
    if str(source).startswith(BUILTIN):
        name, data = str(source), _shipped(str(source).removeprefix(BUILTIN))[1].encode()
    else:
        path = Path(source).absolute()
        name = str(path).encode("utf-8", "backslashreplace").decode()
        try:
            data = path.read_bytes()
        except OSError as error:
            raise LexiconError(f"{path}: cannot be read: {error}") from error
    return SourceFile(path=name, sha256=hashlib.sha256(data).hexdigest())


def shipped() -> list[str]:
    """Names of the lexicons that come with the software."""
    folder = resources.files("transexplain.bias") / "lexicons"
    names = (entry.name.removesuffix(".yaml") for entry in folder.iterdir())
    return sorted(name for name in names if name != "ordinary_words" and not name.startswith("_"))


def _shipped(name: str) -> tuple[str, str]:
    if name not in (*shipped(), "ordinary_words"):
        known = ", ".join(BUILTIN + one for one in shipped())
        raise LexiconError(f"there is no lexicon {BUILTIN}{name}; known: {known}")
    file = resources.files("transexplain.bias") / "lexicons" / f"{name}.yaml"
    return file.name, file.read_text(encoding="utf-8")


def _text(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    if not name.endswith((*_TREES, *_TABLES)):
        known = ", ".join((*_TREES, *_TABLES))
        raise LexiconError(f"{path}: a lexicon is one of {known}, plain or .gz")
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.name.lower().endswith(".gz") else data
        return data.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as error:
        raise LexiconError(f"{path}: cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise LexiconError(f"{path}: not UTF-8 ({error}); save it as UTF-8") from error


def _parse(name: str, text: str) -> Any:
    if name.endswith(".json"):
        return json.loads(text, object_pairs_hook=_once)
    for suffix, delimiter in _TABLES.items():
        if name.endswith(suffix):
            return _grouped(_table(text, delimiter))
    return yaml.load(text, Loader=_Loader)  # a SafeLoader, see below


def _table(text: str, delimiter: str) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, cells by column) of every row that is not empty; raises ValueError."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    columns = [name.strip().lower() for name in next(reader, [])]
    unknown = [name for name in columns if name not in _COLUMNS]
    missing = [name for name in ("group", "term") if name not in columns]
    if unknown or missing or len(set(columns)) < len(columns):
        raise ValueError(
            f"line 1 names the columns {', '.join(columns) or '(none)'}; a lexicon has group and "
            f"term, may have entity, ambiguous and source, each once, and no others"
        )
    for row in reader:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(columns):
            raise ValueError(
                f"line {reader.line_num} has {len(row)} cells, the first line {len(columns)}; put "
                "a term that holds the separator in quotes"
            )
        cells = (cell.strip() for cell in row)
        yield reader.line_num, dict(zip(columns, cells, strict=True))


def _grouped(rows: Iterable[tuple[int, dict[str, str]]]) -> dict[str, Any]:
    """The rows in the form that a YAML file has; a group's sources are joined."""
    found: dict[str, Any] = {}
    for line, row in rows:
        for column in ("group", "term"):
            if not row[column]:
                raise ValueError(f"line {line} has no {column}; fill the cell or delete the line")
        flag = row.get("ambiguous", "").lower()
        if flag and flag not in _FLAGS:
            raise ValueError(
                f"line {line}: group {row['group']!r}, term {row['term']!r}: ambiguous is "
                f"{flag!r}; write yes, no or place, or leave it empty"
            )
        body = found.setdefault(row["group"], {"sources": {}, "terms": []})
        body["sources"].setdefault(row.get("source", ""))
        entry: dict[str, Any] = {"term": row["term"], "ambiguous": _FLAGS.get(flag)}
        body["terms"].append({**entry, "entity": row.get("entity") or None})
    return {
        group: {"source": "; ".join(filter(None, body["sources"])), "terms": body["terms"]}
        for group, body in found.items()
    }


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
