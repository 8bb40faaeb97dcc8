"""The tables of the training study: means over seeds, and joint minus separate seed by seed."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transexplain.analysis.groups.intervals import one_sample

Found = dict[str, Any]
_COLUMNS: dict[str, Callable[[Found, str], float | None]] = {
    "fidelity (higher)": lambda one, method: one["metrics"]["fidelity"][method],
    "comprehensiveness (higher)": lambda one, method: one["metrics"]["comprehensiveness"][method],
    "sufficiency (lower)": lambda one, method: one["metrics"]["sufficiency"][method],
    "sparsity": lambda one, method: one["metrics"]["sparsity"][method],
    "AUAC (higher)": lambda one, method: one["metrics"]["activation"][method],
}
_OF_RUN: dict[str, Callable[[Found], float | None]] = {
    "accuracy": lambda one: one["accuracy"],
    "rank correlation with lrp": lambda one: one["agreement"],
    "relative error": lambda one: one["relative_error"],
    "AUAC, learned - lrp": lambda one: (
        one["metrics"]["activation"]["learned"] - one["metrics"]["activation"]["lrp"]
    ),
    "forwards (operations)": lambda one: one["operations"],
    "forwards (seconds), learned": lambda one: one["cost"]["learned"],
    "forwards (seconds), lrp": lambda one: one["cost"]["lrp"],
    "training, seconds": lambda one: one["seconds"],
}


#: TransExplain, Tables 3 to 5: separate and joint, by the first four of `_COLUMNS`
PUBLISHED = {
    "bert": ((0.81, 0.75, 0.42, 0.61), (0.87, 0.79, 0.35, 0.66)),
    "vit": ((0.78, 0.72, 0.46, 0.60), (0.85, 0.79, 0.38, 0.65)),
    "deit-distilled": ((0.74, 0.70, 0.50, 0.56), (0.81, 0.75, 0.40, 0.59)),
}


def tables(
    out: Path, kinds: Sequence[str], modes: Sequence[str], seeds: int, prefix: str = ""
) -> str:
    """Markdown of the runs whose folders begin with `prefix`.

    What stands behind +- is half of Student's 95 % interval over seeds.
    """
    lines = [
        f"{seeds} seed(s); +- is half of Student's 95 % interval over them; stage 1 on SST-2 "
        "phrases and one half of the CIFAR-10 pictures, stage 2 on 20,000 sentences and the other "
        "half, or a sample of them; measured on SST-2 dev and CIFAR-10 test.\n"
    ]
    by_kind = {
        kind: {
            mode: [_read(out / kind / f"{prefix}{mode}-{seed}") for seed in range(seeds)]
            for mode in modes
        }
        for kind in kinds
    }
    lines += ["\n### As Tables 3 to 5 of the paper\n", *_as_published(by_kind)]
    for kind, found in by_kind.items():
        lines += [f"\n### {kind}\n", *_metrics(found), "", *_runs(found)]
    return "\n".join(lines) + "\n"


def _as_published(by_kind: dict[str, dict[str, list[Found]]]) -> list[str]:
    """Each model a pair of columns; the paper's figures, of other models and data, below ours."""
    modes = [(kind, mode) for kind, found in by_kind.items() for mode in found]
    rows = [
        "| | " + " | ".join(f"{kind}, {mode}" for kind, mode in modes) + " |",
        "|---" * (len(modes) + 1) + "|",
    ]
    for place, (name, value) in enumerate(list(_COLUMNS.items())[:4]):
        cells = [_spread([value(one, "learned") for one in by_kind[k][m]]) for k, m in modes]
        rows.append(f"| {name}, learned | " + " | ".join(cells) + " |")
        printed = [PUBLISHED[k][("separate", "joint").index(m)][place] for k, m in modes]
        rows.append("| as published | " + " | ".join(f"{one:.2f}" for one in printed) + " |")
    return rows


def _read(folder: Path) -> Found:
    found: Found = json.loads((folder / "measured.json").read_text(encoding="utf-8"))
    return found


def _metrics(found: dict[str, list[Found]]) -> list[str]:
    rows = [
        "| trained | method | " + " | ".join(_COLUMNS) + " |",
        "|---" * (len(_COLUMNS) + 2) + "|",
    ]
    for method in ("learned", "lrp", "random"):
        for mode, runs in found.items():
            cells = [_spread([value(one, method) for one in runs]) for value in _COLUMNS.values()]
            rows.append(f"| {mode} | {method} | " + " | ".join(cells) + " |")
        apart = [
            _spread([_minus(value(b, method), value(a, method)) for a, b in _pairs(found)])
            for value in _COLUMNS.values()
        ]
        rows.append(f"| joint - separate | {method} | " + " | ".join(apart) + " |")
    return rows


def _runs(found: dict[str, list[Found]]) -> list[str]:
    rows = ["| | separate | joint | joint - separate |", "|---|---|---|---|"]
    for name, value in _OF_RUN.items():
        cells = [_spread([value(one) for one in runs]) for runs in found.values()]
        apart = _spread([_minus(value(b), value(a)) for a, b in _pairs(found)])
        rows.append(f"| {name} | " + " | ".join(cells) + f" | {apart} |")
    return rows


def _pairs(found: dict[str, list[Found]]) -> list[tuple[Found, Found]]:
    return list(zip(found["separate"], found["joint"], strict=True))


def _minus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    if len(known) < 2:
        return f"{known[0]:.3f}"
    estimate = one_sample(known)
    low, high = estimate.interval()
    return f"{estimate.difference:.3f} ± {(high - low) / 2:.3f}"
