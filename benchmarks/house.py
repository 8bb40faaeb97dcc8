"""Size of the house by room, held against `house.toml`.

    python -m benchmarks.house             # rooms, vague names and modules with one importer
    python -m benchmarks.house --write     # budgets of house.toml by what is there now
    python -m benchmarks.house --changes   # lines in and out by room, since the commit before

A room is a folder two levels down. `--write` sets the budget of every room to its lines, rounded
up to the next fifty, and keeps the reason behind it; it lowers ceilings of names and takes modules
from the list of those with one importer, and raises or adds nothing there.
"""

import argparse
import ast
import re
import subprocess
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOUSE = ROOT / "house.toml"
PACKAGES = ("transexplain", "workers", "orchestrator", "migrations")
STEP = 50  #: lines that a budget is rounded up to
#: a text that may name a module, or an attribute of one
PLACE = re.compile(r"[a-z_]\w*(?:\.[a-z_]\w*)+(?::[A-Za-z_][\w.]*)?")


@cache
def house() -> dict[str, dict[str, object]]:
    """What `house.toml` says."""
    return tomllib.loads(HOUSE.read_text(encoding="utf-8"))


def tables() -> list[str]:
    """The modules that may name modules of any layer."""
    return list(house()["tables"]["modules"])  # type: ignore[call-overload]


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file, of every module of the product."""
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return {dotted(path): path for path in files}


def dotted(path: Path) -> str:
    """The name that a file is imported by."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def room(path: Path) -> str:
    """The folder of a file, at most two levels down from `ROOT`."""
    parts = path.parts
    return "/".join(parts[: 2 if len(parts) > 2 else 1]) if len(parts) > 1 else "."


def rooms() -> dict[str, tuple[int, int]]:
    """Room -> lines and modules; an `__init__` counts by its lines alone."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path in modules().values():
        name = room(path.relative_to(ROOT))
        lines[name] += len(path.read_text(encoding="utf-8").splitlines())
        files[name] += path.name != "__init__.py"
    return {name: (lines[name], files[name]) for name in sorted(lines)}


def bound_names() -> Counter[str]:
    """How often each name of `[names]` is a variable or a parameter."""
    counts = Counter(dict.fromkeys(house()["names"], 0))
    for path in modules().values():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            elif isinstance(node, ast.arg):
                name = node.arg
            else:
                continue
            if name in counts:
                counts[name] += 1
    return counts


def imports(path: Path) -> Iterator[str]:
    """Modules of the product that a module imports, anywhere in it."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in modules() else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def names_in_strings(path: Path) -> Iterator[str]:
    """Modules of the product that a text of this module names, alone or with an attribute.

    A format such as f"transexplain.{name}" stands for a module that cannot be told: it is given as
    it begins.
    """
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            module = node.value.partition(":")[0]
            if PLACE.fullmatch(node.value) and module in modules():
                yield module
        elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            begin = str(node.values[0].value)
            if begin.startswith(tuple(f"{package}." for package in PACKAGES)):
                yield begin


def lonely() -> list[str]:
    """Modules that fewer than two others import and no table names."""
    importers = defaultdict(set)
    for name, path in modules().items():
        for module in (*imports(path), *names_in_strings(path)):
            importers[module].add(name)
    named = {module for table in tables() for module in names_in_strings(modules()[table])}
    return [
        name
        for name, path in modules().items()
        if path.name not in ("__init__.py", "__main__.py")
        and name not in named
        and len(importers[name] - {name}) < 2
    ]


def main() -> None:
    """Print the counts, or what changed, or write the budgets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="the budgets, by what is there now")
    parser.add_argument("--changes", action="store_true", help="lines in and out by room")
    options = parser.parse_args()
    if options.changes:
        _print_changes()
    elif options.write:
        HOUSE.write_text(_rewritten(HOUSE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        for name, (lines, files) in rooms().items():
            print(f"{name:32} {lines:7} lines {files:4} modules")
        print(", ".join(f"{name} {count}" for name, count in bound_names().items()))
        print(f"{len(lonely())} modules with one importer")


def _rewritten(text: str) -> str:
    """The text of `house.toml` with numbers by what is there; comments stay where they are."""
    reasons = dict(re.findall(r'(?m)^"([\w/]+)" = \[[^\]]*\]([^\n]*)', text))
    budgets = "".join(
        f'"{name}" = [{-(-lines // STEP) * STEP}, {files}]{reasons.get(name, "")}\n'
        for name, (lines, files) in rooms().items()
    )
    text = re.sub(r'(?m)(?:^"[\w/]+" = \[[^\]]*\][^\n]*\n)+', lambda _: budgets, text, count=1)
    for name, count in bound_names().items():
        ceiling = min(count, int(str(house()["names"][name])))
        text = re.sub(rf"(?m)^{name} = \d+", f"{name} = {ceiling}", text)
    for name in {*house()["one_importer"]["modules"]} - {*lonely()}:
        text = text.replace(f'  "{name}",\n', "")
    return text


def _print_changes() -> None:
    """Lines in and out by room, of the last commit and since the branch left main."""
    bases = {"since the commit before": "HEAD~1"}
    for branch in ("origin/main", "main"):
        if base := _git("merge-base", "HEAD", branch):
            bases[f"since {branch}"] = base
            break
    for title, base in bases.items():
        rows = [
            line.split("\t", 2)
            for line in _git("diff", "--numstat", "--no-renames", base, "HEAD").splitlines()
        ]
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for inserted, deleted, name in rows:
            for place in (room(Path(name)), "all"):
                counts[place]["in"] += int(inserted) if inserted.isdigit() else 0
                counts[place]["out"] += int(deleted) if deleted.isdigit() else 0
        print(f"lines in and out {title}:" if rows else f"no lines to compare {title}")
        for place, count in sorted(counts.items(), key=lambda entry: -entry[1].total()):
            print(f"  {place:32} {count['in']:+7} {-count['out']:+7}")


def _git(*words: str) -> str:
    """What git prints; nothing where it fails, as in a shallow clone."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


if __name__ == "__main__":
    main()
