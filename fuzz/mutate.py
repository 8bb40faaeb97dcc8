"""New inputs out of old ones: bytes, JSON and YAML trees, lines, and folders of small files.

Pure functions of (input, random numbers, words), so that atheris and hypothesis share them.
"""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import yaml

#: what begins a file of an input that stands for a folder
_FILE = b"=== "
_NODES = 300  #: of a tree that are looked at: aliases can make it endless
_SCALARS: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 255, 65_536, 2**31, 2**53 + 1, -(2**63), 2**64, 10**40),
    *(0.5, -0.0, 1e-320, 1e308, float("nan"), float("inf"), float("-inf")),
    *("", " ", "0", "-1", "nan", "null", "\x00", "\ud800", "\u202e", "\x1b[2J", "é", "\U0001f600"),
    *("../outside/secret.txt", "/etc/passwd", "a" * 5_000, "x.y", "os.system", "antigravity"),
    *([], {}, [[]], [None], {"": None}),
)
_BYTES = (
    *(b"\x00", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\r\n", b"\n", b"\r", b'"', b"'", b"\\"),
    *(b",", b"\t", b":", b"- ", b"&a ", b"*a ", b"<<: ", b"!!", b"%", b"@", b"/", b"#", b"?"),
    *(b"[" * 2_000, b"{" * 50, b"9" * 5_000, b"-1", b"1e999", b"NaN", b"\x1f\x8b\x08"),
)


def mutate(
    data: bytes, random: Random, words: Sequence[bytes] = (), *, most: int = 1 << 16
) -> bytes:
    """One input near `data`, of at most `most` bytes; `words` are of the format's vocabulary."""
    files = split_files(data)
    if files and random.random() < 0.9:
        name = random.choice(sorted(files))
        if random.random() < 0.1:
            files[f"{name}{random.randrange(9)}"] = files.pop(name)
        else:
            files[name] = _mutated(files[name], random, words)
        return join_files(files)[:most]
    return _mutated(data, random, words)[:most]


def split_files(data: bytes) -> dict[str, bytes]:
    """The files of an input that stands for a folder: `=== NAME`, then the content, and so on.

    Empty where the input begins otherwise.
    """
    if not data.startswith(_FILE):
        return {}
    found = {}
    for part in data[len(_FILE) :].split(b"\n" + _FILE):
        name, _, content = part.partition(b"\n")
        found[name.decode("utf-8", "replace")] = content
    return found


def join_files(files: Mapping[str, bytes]) -> bytes:
    """The input that `split_files` reads."""
    return b"\n".join(_FILE + name.encode() + b"\n" + body for name, body in files.items())


def _mutated(data: bytes, random: Random, words: Sequence[bytes]) -> bytes:
    if random.random() < 0.6:
        for form in (_whole_json, _one_line, _whole_yaml):
            if (found := form(data, random, words)) is not None:
                return found
    for _ in range(random.choice((1, 1, 2, 4))):
        data = _bytewise(data, random, words)
    return data


def _whole_json(data: bytes, random: Random, words: Sequence[bytes]) -> bytes | None:
    """As JSON; a first line that is none (it chooses a reader) stays as it is."""
    head, newline, rest = data.partition(b"\n")
    for kept, body in ((b"", data), (head + newline, rest)):
        try:
            return kept + _dump(_other_tree(json.loads(body), random, words), random)
        except (ValueError, RecursionError):
            continue
    return None


def _one_line(data: bytes, random: Random, words: Sequence[bytes]) -> bytes | None:
    lines = data.splitlines(keepends=True)
    places = [place for place, line in enumerate(lines) if line[:1] in (b"{", b"[")]
    if not places:
        return None
    place = random.choice(places)
    try:
        tree = _other_tree(json.loads(lines[place]), random, words)
    except (ValueError, RecursionError):
        return None
    lines[place] = _dump(tree, random) + b"\n"
    return b"".join(lines)


def _whole_yaml(data: bytes, random: Random, words: Sequence[bytes]) -> bytes | None:
    head, newline, rest = data.partition(b"\n")
    if b"&" in rest or len(rest) > 4_000 or random.random() < 0.5:
        return None
    try:
        tree = yaml.safe_load(rest)
        if not isinstance(tree, dict | list):
            return None
        text = yaml.safe_dump(_other_tree(tree, random, words), allow_unicode=True)
        return head + newline + text.encode("utf-8", "surrogatepass")
    except Exception:  # noqa: BLE001 - PyYAML has many: `!!timestamp x` is an AttributeError
        return None


def _dump(tree: Any, random: Random) -> bytes:
    text = json.dumps(tree, ensure_ascii=random.random() < 0.7, default=str)
    return text.encode("utf-8", "surrogatepass")


def _other_tree(tree: Any, random: Random, words: Sequence[bytes]) -> Any:
    """`tree` with one to three of its nodes changed in place; the root may be another."""
    for _ in range(random.choice((1, 1, 2, 3))):
        places = _places(tree)
        if not places or random.random() < 0.02:
            return _value(tree, random, words)
        holder, key = random.choice(places)
        random.choice(_CHANGES)(holder, key, random, words)
    return tree


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """(mapping or list, key) of every node below the root, the first few hundred."""
    found: list[tuple[Any, Any]] = []
    todo = [tree]
    while todo and len(found) < _NODES:
        node = todo.pop(0)
        keys = list(node) if isinstance(node, dict) else range(len(node)) if _is_list(node) else ()
        found += [(node, key) for key in keys]
        todo += [node[key] for key in keys]
    return found[:_NODES]


def _is_list(node: Any) -> bool:
    return isinstance(node, list)


def _value(old: Any, random: Random, words: Sequence[bytes]) -> Any:
    kind = random.randrange(8)
    if kind == 0 and words:
        return random.choice(words).decode("utf-8", "replace")
    if kind == 1:
        return [old]
    if kind == 2:
        return str(old)
    if kind == 3 and isinstance(old, int | float):
        return old + random.choice((-1, 1, 0.5)) if abs(old) < 1e300 else -1
    if kind == 4 and isinstance(old, str):
        return _bytewise(old.encode("utf-8", "replace"), random, words).decode("utf-8", "replace")
    if kind == 5:
        deep: Any = old
        for _ in range(random.choice((3, 60))):
            deep = [deep] if random.random() < 0.5 else {"a": deep}
        return deep
    return _scalar(random)


def _scalar(random: Random) -> Any:
    return copy.deepcopy(random.choice(_SCALARS))  # later changes go into lists and mappings


def _replace(holder: Any, key: Any, random: Random, words: Sequence[bytes]) -> None:
    holder[key] = _value(holder[key], random, words)


def _delete(holder: Any, key: Any, _random: Random, _words: Sequence[bytes]) -> None:
    del holder[key]


def _repeat(holder: Any, key: Any, random: Random, _words: Sequence[bytes]) -> None:
    if isinstance(holder, list):
        holder[key:key] = [holder[key]] * random.choice((1, 1, 2, 40))
    else:
        holder[f"{key}{random.randrange(9)}"] = holder[key]


def _rename(holder: Any, key: Any, random: Random, words: Sequence[bytes]) -> None:
    if isinstance(holder, dict):
        name = random.choice(words).decode("utf-8", "replace") if words else "x"
        holder[name] = holder.pop(key) if random.random() < 0.5 else _scalar(random)
    else:
        random.shuffle(holder)


def _swap(holder: Any, key: Any, random: Random, _words: Sequence[bytes]) -> None:
    other = (
        random.choice(list(holder)) if isinstance(holder, dict) else random.randrange(len(holder))
    )
    holder[key], holder[other] = holder[other], holder[key]


_CHANGES: tuple[Callable[[Any, Any, Random, Sequence[bytes]], None], ...] = (
    *(_replace, _replace, _replace),
    *(_delete, _repeat, _rename, _swap),
)


def _bytewise(data: bytes, random: Random, words: Sequence[bytes]) -> bytes:
    start = random.randrange(len(data) + 1)
    end = min(len(data), start + random.choice((1, 1, 2, 4, 16, 64)))
    kind = random.randrange(6)
    if kind == 0:
        return data[:start] + data[end:]
    if kind == 1:
        return data[:end] + data[start:end] * random.choice((1, 1, 3, 100)) + data[end:]
    if kind == 2 and start < len(data):
        return data[:start] + bytes([random.randrange(256)]) + data[start + 1 :]
    if kind == 3 and words:
        return data[:start] + random.choice(words) + data[start if random.random() < 0.5 else end :]
    if kind == 4:
        return data[:start] + random.choice(_BYTES) + data[end:]
    there = random.randrange(len(data) + 1)
    return data[:there] + data[start:end] + data[there:]
