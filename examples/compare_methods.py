"""How much do explanation methods agree on a corpus, and do they tell classes apart?

    python examples/compare_methods.py --model DIR --data FILE.tsv.gz [--items N] [--methods M ...]
        [--param METHOD.name=value ...] [--output compare.png] [--json compare.json]

Explains the first N items by every method that is defined for the model, for the two likeliest
classes; prints seconds per item and class sensitivity, and draws the mean rank correlation
(Spearman) between all pairs of methods for the likeliest class.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import yaml
from scipy.stats import rankdata

import transexplain as te
from transexplain.data.shard_reader import read_shard
from transexplain.data.snapshot import prepare
from transexplain.errors import TransExplainError
from transexplain.evaluating.metrics.map_metrics import sensitivity_between
from transexplain.methods import METHODS
from transexplain.types.plans import DatasetSpec, Shard

mpl.use("Agg")


def main() -> None:
    """Explain, compare, draw."""
    options = _parsed()
    model = te.load_model(options.model)
    dataset = prepare(DatasetSpec(source=options.data, limit=options.items), options.snapshots)
    items = list(read_shard(dataset, Shard(index=0, start=0, stop=dataset.rows)))
    params: dict[str, dict[str, Any]] = {}
    for pair in options.param:
        key, _, value = pair.partition("=")
        method, _, name = key.partition(".")
        params.setdefault(method, {})[name] = yaml.safe_load(value)
    maps: dict[str, list[np.ndarray[Any, Any]]] = {}
    rows = {}
    for method in options.methods:
        begun = time.perf_counter()
        try:
            found = te.explain(model, items, method, "top:2", **params.get(method, {}))
        except TransExplainError as error:
            print(f"{method:26} not defined: {error}")
            continue
        seconds = (time.perf_counter() - begun) / len(items)
        pairs = list(zip(found[::2], found[1::2], strict=True))
        sensitivity = float(np.mean([sensitivity_between(*pair) for pair in pairs]))
        maps[method] = [_ranks(first) for first, _ in pairs]
        rows[method] = {"seconds_per_item": seconds, "class_sensitivity": sensitivity}
        print(
            f"{method:26} {seconds:8.3f} s/item   class sensitivity {sensitivity:.3f}", flush=True
        )
    table = _correlations(maps)
    _draw(table, list(maps), options.output, len(items))
    if options.json:
        document = {"methods": rows, "order": list(maps), "correlation": table.tolist()}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {options.output}")


def _ranks(one: Any) -> np.ndarray[Any, Any]:
    """Centred ranks of the item's own positions, of length 1; zeros where all are equal."""
    values = one.relevance.ravel()
    if not isinstance(one.features, te.PatchGrid):
        values = values[[not token.special for token in one.features]]
    ranks = rankdata(values) - (len(values) + 1) / 2
    length = float(np.linalg.norm(ranks))
    return ranks / length if length else ranks


def _correlations(maps: dict[str, list[np.ndarray[Any, Any]]]) -> np.ndarray[Any, Any]:
    names = list(maps)
    table = np.ones((len(names), len(names)))
    for i, one in enumerate(names):
        for j, other in enumerate(names):
            dots = [float(a @ b) for a, b in zip(maps[one], maps[other], strict=True)]
            table[i, j] = np.mean(dots)
    return table


def _draw(table: np.ndarray[Any, Any], names: list[str], path: Path, items: int) -> None:
    from matplotlib import pyplot

    size = 2.5 + 0.42 * len(names)
    figure, axes = pyplot.subplots(figsize=(size + 1.5, size), layout="constrained")
    shown = axes.imshow(table, cmap="RdBu", vmin=-1, vmax=1)
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    for i in range(len(names)):
        for j in range(len(names)):
            shade = "white" if abs(table[i, j]) > 0.6 else "black"
            axes.text(j, i, f"{table[i, j]:.2f}", ha="center", va="center", fontsize=6, color=shade)
    axes.set_title(f"Mean rank correlation over {items} items, likeliest class", fontsize=10)
    figure.colorbar(shown, shrink=0.7)
    figure.savefig(path, dpi=150)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--param", nargs="*", default=[], metavar="METHOD.NAME=VALUE")
    parser.add_argument("--output", type=Path, default=Path("compare.png"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--snapshots", type=Path, default=Path(".transexplain/snapshots"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
