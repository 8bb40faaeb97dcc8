"""The layers of the house: imports and names in texts go downward; torch stays out of start-up."""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from benchmarks.house import (
    PACKAGES,
    ROOT,
    dotted,
    imports,
    modules,
    names_in_strings,
    parsed,
    tables,
)

PAGE = ROOT / "docs" / "contribute" / "architecture.md"
#: rooms whose modules import torch as they are imported; all others do so in functions
WITH_TORCH = {
    *("api", "render", "extras", "provenance", "auditing", "evaluating"),
    *("doctor", "explaining", "methods", "engine", "models"),
}
HEAVY = {"torch", "transformers", "timm", "torchvision"}
EXTRAS = "extras"  #: imports what is below it; tables alone name it


def layers() -> list[list[str]]:
    """The rooms of each layer, the highest first, as the page has them."""
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ \| ([^|]+) \|", text.partition("## Layers")[2], re.MULTILINE)
    return [re.findall(r"`(\w+)`", row) for row in rows]


LEVEL = {name: -level for level, names in enumerate(layers()) for name in names}


def room(name: str) -> str | None:
    """The layer's name for a module; None for other packages' modules and the package itself."""
    parts = name.split(".")
    if parts[0] == "transexplain":
        return parts[1] if len(parts) > 1 else None
    return parts[0] if parts[0] in PACKAGES else None


def named(path: Path) -> Iterator[str]:
    """Modules that a module imports or, where it is no table, names in a text."""
    yield from imports(path)
    if dotted(path) not in tables():
        yield from names_in_strings(path)


def test_every_module_is_on_a_layer_of_the_page() -> None:
    assert {room(name) for name in modules()} - {None} == set(LEVEL)


def test_imports_go_downward() -> None:
    assert list(upward()) == []


def upward() -> Iterator[str]:
    """What names something above, or beside it on its layer, in an import or a text."""
    for name, path in modules().items():
        here = room(name)
        for other in named(path):
            there = room(other)
            if here is None or there is None or there == here:
                continue  # the package's own __init__ names the public functions
            if there == EXTRAS or LEVEL[there] >= LEVEL[here]:
                yield f"{path.relative_to(ROOT)} names {other}"


def test_the_tables_name_modules() -> None:
    assert [table for table in tables() if not {*names_in_strings(modules()[table])}] == []


def test_imports_are_absolute() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules().values()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and node.level
    ] == []


def test_start_up_imports_no_torch() -> None:
    assert [
        f"{path.relative_to(ROOT)} imports {package}"
        for name, path in modules().items()
        if room(name) not in WITH_TORCH
        for package in at_module_level(parsed(path))
        if package in HEAVY
    ] == []


def at_module_level(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).partition(".")[0]


def test_modules_and_functions_stay_small() -> None:
    assert list(too_long()) == []


def too_long() -> Iterator[str]:
    for path in modules().values():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > 800:
            yield f"{path.relative_to(ROOT)} has {lines} lines"
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                length = node.end_lineno - node.lineno - docstring_lines(node)
                if length >= 60:
                    yield f"{path.relative_to(ROOT)}:{node.name} has {length} lines"


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Shapes, units and sources are no code: a well described function is not a long one."""
    first = node.body[0]
    if ast.get_docstring(node) is None or first.end_lineno is None:
        return 0
    return first.end_lineno - first.lineno + 1


def test_no_two_modules_share_a_name() -> None:
    places: dict[str, list[str]] = {}
    for name, path in modules().items():
        if path.name != "__init__.py":
            places.setdefault(path.name, []).append(name)
    assert [names for names in places.values() if len(names) > 1] == []


def test_no_import_circles() -> None:
    """Neither at the top of modules, nor by imports inside functions, nor by names in texts."""
    graph = {
        name: {other for other in named(path) if other in modules() and other != name}
        for name, path in modules().items()
    }
    TopologicalSorter(graph).prepare()  # CycleError names a circle
