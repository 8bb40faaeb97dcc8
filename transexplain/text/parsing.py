"""Reads YAML and JSON from untrusted files, within limits of size, depth and aliases.

What is too large, too deep or too often repeated is refused before anything is built of it. What
is read holds nothing but mappings, lists, texts, truths, null, integers of 64 bits and floats:
other things that YAML can say (sets, bytes, objects of Python) would fail later, somewhere else.
"""

import json
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

LARGEST = 16_000_000  #: bytes of a file
_LARGEST_YAML = 1_000_000  #: characters: yaml reads some 100,000 a second
_ALIASED = 100_000  #: characters and nodes that aliases may make of any document, however short
DEEPEST = 64  #: mappings and lists within each other
_MOST = 1_000_000  #: mappings and lists of a document: in memory an empty one has 64 bytes
_LONGEST_NUMBER = 400  #: characters
_WIDEST = 2**63
#: what stands before a bracket or the end, texts among it, and the bracket; no step is taken back
_BRACKETS = re.compile(r"""(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+"?+)*+([\[\]{}]|\Z)""", re.DOTALL)
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_KINDS = tuple(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str"))
_SEQUENCE, _MAPPING = "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"

#: makes a mapping of the pairs of a document
Pairs = Callable[[list[tuple[Any, Any]]], Any]


class UnreadableError(ValueError):
    """A document that is no YAML or JSON, or beyond a limit; the message says what and where."""


def read_text(path: Path) -> str:
    """A file of text; raises OSError, UnicodeDecodeError, UnreadableError where it is too large."""
    with path.open("rb") as file:
        return text_of(file.read(LARGEST + 1))


def text_of(data: bytes) -> str:
    """The text of a file's bytes; raises UnicodeDecodeError, UnreadableError for too many."""
    if len(data) > LARGEST:
        raise UnreadableError(f"it has more than {LARGEST:,} bytes")
    return data.decode("utf-8-sig")


def read_yaml(text: str) -> Any:
    """The only document in a YAML text; no key of a mapping may come twice.

    Raises UnreadableError.
    """
    if len(text) > _LARGEST_YAML:
        raise UnreadableError(f"it has more than {_LARGEST_YAML:,} characters, too many for YAML")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_growth(node, max(_ALIASED, 4 * len(text)))
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        # in one line: yaml's own message repeats the document's lines, which may hold anything
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        context = getattr(error, "context", None)
        message = f"{where}{context}, {problem}" if context else f"{where}{problem}"
        raise UnreadableError(message) from None


def read_json(text: str, pairs: Pairs | None = None) -> Any:
    """A JSON document; `pairs` makes its mappings. Raises UnreadableError."""
    if len(text) > LARGEST:
        raise UnreadableError(f"it has more than {LARGEST:,} characters")
    refuse_depth(text)
    try:
        return json.loads(text, object_pairs_hook=pairs, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(str(error)) from None


def refuse_depth(text: str) -> None:
    """Raise UnreadableError for JSON that is nested too deeply, or too large, to be built."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return
    depth = many = 0
    for match in _BRACKETS.finditer(text):
        if match[1] not in ("[", "{"):
            depth -= 1
            continue
        depth, many = depth + 1, many + 1
        if depth > DEEPEST:
            raise UnreadableError(f"it is nested more than {DEEPEST} deep")
        if many > _MOST:
            raise UnreadableError(f"it holds more than {_MOST:,} lists and objects")


def refuse_unstorable(value: Any, place: str = "") -> None:
    """Raise UnreadableError for what no JSON or path can hold, naming the place.

    That is a number that is not finite, and a text with NUL or a lone surrogate.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise UnreadableError(f"{place or 'it'}: {value} is no finite number")
    if isinstance(value, str) and _NO_TEXT.search(value):
        raise UnreadableError(f"{place or 'it'}: holds NUL or a lone surrogate; leave it out")
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        parts = [*((name, name) for name in value), *value.items()]
    elif isinstance(value, list):
        parts = enumerate(value)
    for name, part in parts:
        refuse_unstorable(part, f"{place}.{name}".lstrip("."))


class _Loader(yaml.SafeLoader):
    """Safe loading of plain values, nested to a limit."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0
        self.own: dict[int, int] = {}  #: pairs of a mapping besides those that it merges

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        """As yaml's, with a limit on the depth of recursion."""
        self.depth += 1
        if self.depth > DEEPEST:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem=f"nested more than {DEEPEST} deep", problem_mark=mark
            )
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def flatten_mapping(self, node: MappingNode) -> None:
        """As yaml's; counts the mapping's own pairs, which follow those of `<<`."""
        if node.id != "mapping":
            raise _at(node, "expected a mapping")
        merges = sum(key.tag.endswith(":merge") for key, _ in node.value)
        self.own.setdefault(id(node), len(node.value) - merges)
        super().flatten_mapping(node)

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As yaml's, but equal keys are refused."""
        self.flatten_mapping(node)
        mapping: dict[Any, Any] = {}
        merged = len(node.value) - self.own[id(node)]
        seen: set[Any] = set()
        for place, (key_node, value_node) in enumerate(node.value):
            if not isinstance(key_node, ScalarNode):
                raise _at(key_node, "a list or mapping cannot be a name; put it in quotes")
            key = self.construct_object(key_node, deep=True)
            if place >= merged and key in seen:
                raise _at(key_node, f"{key!r} is given twice; keep one, or join the two")
            if place >= merged:
                seen.add(key)
            mapping[key] = self.construct_object(value_node, deep=deep)
        return mapping

    def plain(self, node: ScalarNode) -> Any:
        """A number or truth; refused where it has not the form that its tag promises."""
        kind = node.tag.rpartition(":")[2]
        if len(node.value) > _LONGEST_NUMBER:
            raise _at(node, f"a number of {len(node.value):,} characters; put texts in quotes")
        try:
            value = getattr(self, f"construct_yaml_{kind}")(node)
        except (ValueError, LookupError, TypeError, OverflowError):
            raise _at(node, f"{node.value[:40]!r} is no {kind}") from None
        if type(value) is int and not -_WIDEST <= value < _WIDEST:
            raise _at(node, "a whole number beyond 64 bits; put texts in quotes")
        return value

    def text(self, node: ScalarNode) -> str:
        """A text; two escapes of JSON's that make one letter are joined, which yaml's does not."""
        value = str(self.construct_scalar(node))
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

    def other(self, node: Node) -> Any:
        """Anything else."""
        raise _at(node, f"the tag {node.tag[:60]!r} is not read here; write plain values")


_Loader.yaml_constructors = {
    **dict.fromkeys(_KINDS[:-1], _Loader.plain),
    _KINDS[-1]: _Loader.text,
    _SEQUENCE: yaml.SafeLoader.construct_yaml_seq,
    _MAPPING: yaml.SafeLoader.construct_yaml_map,
    None: _Loader.other,
}
#: dates stay the texts that they are written as
_Loader.yaml_implicit_resolvers = {
    first: [entry for entry in resolver if not entry[0].endswith((":timestamp", ":value"))]
    for first, resolver in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _refuse_growth(root: Node, most: int) -> None:
    """Refuse a document that aliases make endless, or of more than `most` characters and nodes."""
    sizes: dict[int, int] = {}
    open_: set[int] = set()

    def size(node: Node) -> int:
        known = sizes.get(id(node))
        if known is not None:
            return known
        if id(node) in open_:
            raise _at(node, "it contains itself")
        open_.add(id(node))
        size_ = 1 + sum(map(size, _parts(node)))
        size_ += len(node.value) if isinstance(node, ScalarNode) else 0
        if size_ > most:
            raise _at(node, "its aliases make it too large")
        open_.discard(id(node))
        sizes[id(node)] = size_
        return size_

    size(root)


def _parts(node: Node) -> list[Node]:
    if isinstance(node, MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, SequenceNode) else []


def _at(node: Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def _integer(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise UnreadableError(f"a number of {len(text):,} digits")
    return int(text)
