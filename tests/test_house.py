"""The house stays as large as `house.toml` says, and what it says of itself is there."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.house import (
    PACKAGES,
    ROOT,
    bound_names,
    house,
    lonely,
    modules,
    parsed,
    rooms,
)
from orchestrator.spec.audit_spec import AuditSpec
from workers.app import PERIODIC

MEND = "run `python -m benchmarks.house --write`"
#: endings of files that are read and written
FILES = {"csv", "db", "js", "json", "jsonl", "md", "parquet", "png", "safetensors", "svg", "yaml"}
#: `module.name` or `module.Class.name`, perhaps called
REFERENCE = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`")


def table(name: str) -> Any:
    return house()[name]


def test_no_room_is_beyond_its_budget() -> None:
    there, budgets = rooms(), table("rooms")
    assert there.keys() == budgets.keys(), f"a room is new or gone: {MEND}"
    beyond = [
        f"{name}: {lines} lines of {budgets[name][0]}, {files} modules of {budgets[name][1]}"
        for name, (lines, files) in there.items()
        if lines > budgets[name][0] or files > budgets[name][1]
    ]
    assert beyond == [], "lower another budget, or edit house.toml with a reason, in this commit"


def test_names_that_say_nothing_become_fewer() -> None:
    counts, ceilings = bound_names(), table("names")
    more = {name: (n, ceilings[name]) for name, n in counts.items() if n > ceilings[name]}
    assert more == {}, "a noun of the field says what it is"
    below = {name: n for name, n in counts.items() if n < 0.95 * ceilings[name]}
    assert below == {}, f"the ceiling follows: {MEND}"


def test_a_module_has_two_importers_or_is_in_a_table() -> None:
    listed = {*table("one_importer")["modules"]}
    assert {*lonely()} - listed == set(), "it belongs into its importer, or into a table"
    assert listed - {*lonely()} == set(), f"the list only shrinks: {MEND}"


def test_references_to_the_house_resolve() -> None:
    """`module.name`, `Class.name` and `module.py` in docstrings and comments are there."""
    assert [
        f"{path.relative_to(ROOT)}: `{reference}`"
        for path in modules().values()
        for reference in REFERENCE.findall(described(path))
        if not resolves(reference)
    ] == []


def described(path: Path) -> str:
    """The docstrings and comments of a module."""
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(node) for node in ast.walk(parsed(path)) if isinstance(node, nodes)]
    comments = re.findall(r"(?m)#.*$", path.read_text(encoding="utf-8"))
    return "\n".join(filter(None, (*texts, *comments)))


def resolves(reference: str) -> bool:
    *_, owner, name = reference.split(".")
    first = reference.partition(".")[0]
    if name in FILES or first in foreign() or first in AuditSpec.model_fields:
        return True  # a file that is written, another package, a key of an audit
    if first == "benchmarks":
        return (ROOT / first / f"{name}.py").is_file()
    if name == "py":
        return owner in {module.rpartition(".")[2] for module in modules()}
    return reference in modules() or name in bindings()[owner] or reference in PERIODIC


@cache
def foreign() -> set[str]:
    """Names that modules of the house import from other packages."""
    nodes = [node for path in modules().values() for node in ast.walk(parsed(path))]
    whole = [node for node in nodes if isinstance(node, ast.Import)]
    parts = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    parts = [node for node in parts if str(node.module).partition(".")[0] not in PACKAGES]
    aliases = [alias for node in (*whole, *parts) for alias in node.names]
    packages = {str(node.module).partition(".")[0] for node in parts}
    return packages | {(alias.asname or alias.name).partition(".")[0] for alias in aliases}


@cache
def bindings() -> dict[str, set[str]]:
    """Base name of a module, class or variable -> names that stand in it or are read from it."""
    names: dict[str, set[str]] = defaultdict(set)
    for module, path in modules().items():
        base = module.rpartition(".")[2]
        names[module.rpartition(".")[0].rpartition(".")[2]].add(base)
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                names[node.name] |= {*stored(node)}
            if isinstance(node, ast.Attribute):
                names[getattr(node.value, "id", getattr(node.value, "attr", ""))].add(node.attr)
        names[base] |= {*stored(parsed(path))}
    return names


def stored(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
