"""The layers of the house: every import goes downward, and torch stays out of start-up."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("transexplain", "workers", "orchestrator", "migrations")
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "version"),
    ("text", "registry", "environment", "interpreter", "randomness", "rank_correlation"),
    ("types",),
    ("files",),
    ("settings",),
    ("engine", "models", "data", "store"),
    ("methods", "migrations"),
    ("explaining",),
    ("evaluating", "analysis", "training", "doctor"),
    ("auditing", "provenance"),
    ("reports",),
    ("extras", "workers", "api", "render"),
    ("orchestrator",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
TORCH_FREE = {
    "orchestrator",
    "workers",
    "store",
    "reports",
    "analysis",
    "data",
    "types",
    "registry",
    "settings",
    "environment",
    "text",
    "files",
    "randomness",
    "rank_correlation",
    "interpreter",
    "errors",
    "version",
}
HEAVY = {"torch", "transformers", "timm", "torchvision"}


def modules() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def room(dotted: str) -> str | None:
    """The layer name that a module belongs to; None for other packages' modules."""
    parts = dotted.split(".")
    if parts[0] in ("workers", "orchestrator", "migrations"):
        return parts[0]
    if parts[0] != "transexplain":
        return None
    return parts[1] if len(parts) > 1 and not parts[1].startswith("__") else "transexplain"


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "absolute imports only"
            yield from (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "transexplain"
                else [node.module]
            )


def module_level_imports(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imports(ast.Module(body=[node], type_ignores=[]))


def dotted_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def own_room(path: Path) -> str:
    return room(dotted_name(path)) or ""


def test_imports_go_downward() -> None:
    assert list(upward()) == []


def upward() -> Iterator[str]:
    """Imports of something above, or of something that is on no layer."""
    for path in modules():
        here = own_room(path)
        if here == "transexplain":
            continue  # the package's own __init__ names the public functions lazily
        for name in imports(parsed(path)):
            there = room(name)
            if there is None or there in (here, "transexplain"):
                continue
            if there not in LEVEL or LEVEL[there] >= LEVEL[here]:
                yield f"{path.relative_to(ROOT)} imports {name}"


def test_start_up_imports_no_torch() -> None:
    assert list(heavy_at_start_up()) == []


def heavy_at_start_up() -> Iterator[str]:
    for path in modules():
        if own_room(path) in TORCH_FREE:
            for name in module_level_imports(parsed(path)):
                if name.partition(".")[0] in HEAVY:
                    yield f"{path.relative_to(ROOT)} imports {name}"


def test_modules_and_functions_stay_small() -> None:
    assert list(too_long()) == []


def too_long() -> Iterator[str]:
    for path in modules():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > 800:
            yield f"{path.relative_to(ROOT)} has {lines} lines"
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                length = node.end_lineno - node.lineno - docstring_lines(node)
                if length >= 60:
                    yield f"{path.relative_to(ROOT)}:{node.name} has {length} lines"


def test_no_two_modules_share_a_name() -> None:
    places: dict[str, list[str]] = {}
    for path in modules():
        if path.name != "__init__.py":
            places.setdefault(path.name, []).append(str(path.relative_to(ROOT)))
    assert [paths for paths in places.values() if len(paths) > 1] == []


def test_no_import_circles() -> None:
    """Neither at the top of modules nor by imports inside functions."""
    TopologicalSorter(import_graph()).prepare()  # CycleError names a circle


def import_graph() -> dict[str, set[str]]:
    """Each module of the house and the modules of the house that it imports, anywhere in it."""
    names = {dotted_name(path): path for path in modules()}
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        graph[name] = set()
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom) and node.module in names:
                for alias in node.names:
                    submodule = f"{node.module}.{alias.name}"
                    graph[name].add(submodule if submodule in names else node.module)
            elif isinstance(node, ast.Import):
                graph[name].update(alias.name for alias in node.names if alias.name in names)
        graph[name].discard(name)
    return graph


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Shapes, units and sources are no code: a well described function is not a long one."""
    first = node.body[0]
    if ast.get_docstring(node) is None or first.end_lineno is None:
        return 0
    return first.end_lineno - first.lineno + 1
