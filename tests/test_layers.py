"""The layers of the house: every import goes downward, and torch stays out of start-up."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("transexplain", "workers", "orchestrator", "migrations")
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "version"),
    ("types", "evaluations", "findings", "plans", "supervision"),
    (
        "randomness",
        "atomic_write",
        "positions",
        "rank_correlation",
        "settings",
        "addresses",
        "parsing",
        "surroundings",
        "spans",
    ),
    ("registry", "targets"),
    ("migrations",),
    ("engine", "models", "learned", "data", "store"),
    ("methods", "manifests"),
    ("bias", "metrics"),
    ("explaining", "strategies"),
    ("evaluating", "mentioning", "privacy", "training"),
    ("checking",),
    ("audit", "comparing", "importing", "reports", "verifying", "doctor"),
    ("workers", "api", "render", "exports"),
    ("orchestrator",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
#: downward, but two nouns of one level that build on each other
ALLOWED_WITHIN = {
    ("plans", "types"),
    ("plans", "evaluations"),
    ("plans", "findings"),
    ("registry", "targets"),
    ("targets", "registry"),
}
TORCH_FREE = (
    "orchestrator",
    "workers",
    "store",
    "reports",
    "exports",
    "bias",
    "metrics",
    "strategies",
    "privacy",
    "data",
    "types",
    "evaluations",
    "findings",
    "plans",
    "registry",
    "targets",
    "settings",
    "addresses",
    "parsing",
    "surroundings",
    "spans",
    "manifests",
    "errors",
    "version",
)
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


def own_room(path: Path) -> str:
    dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return room(dotted.removesuffix(".__init__")) or ""


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
            if there is None or there in (here, "transexplain") or (here, there) in ALLOWED_WITHIN:
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
        if lines > 400:
            yield f"{path.relative_to(ROOT)} has {lines} lines"
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                length = node.end_lineno - node.lineno - docstring_lines(node)
                if length >= 40:
                    yield f"{path.relative_to(ROOT)}:{node.name} has {length} lines"


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Shapes, units and sources are no code: a well described function is not a long one."""
    first = node.body[0]
    if ast.get_docstring(node) is None or first.end_lineno is None:
        return 0
    return first.end_lineno - first.lineno + 1
