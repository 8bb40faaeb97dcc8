"""Explanations of graph transformers, as in the tables of Ali et al. 2022 (section 6.2).

    python -m benchmarks.graphs --shared DIR --out DIR [--sets superpixels bace] [--items N]
                                [--graphs N] [--epochs N]

A graph transformer of two layers is trained on each set of graphs (or read from --out, where an
earlier call left it): digits as superpixels (`mnist_10k-*.gz` below --shared) and molecules
(`bace.csv`). Test graphs are explained by every method for their correct class. AUAC: nodes are
added to an empty graph, most relevant first; AU-MSE: nodes are removed, smallest |relevance| first.
Written to --out: models, test graphs as `graphs:DIR` reads them, tables, pictures. Needs
`pip install '.[molecules,superpixels,flow]'`.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

import transexplain as te
from benchmarks.graph_sets import SEGMENTS, Graph, GraphSet, bace, picture_of, superpixel_digits
from benchmarks.graph_training import RECIPES, train
from transexplain.extras.graphs.graph_files import write_graphs
from transexplain.extras.graphs.molecules import molecule_svg
from transexplain.extras.graphs.superpixels import superpixels
from transexplain.models.loaded_model import LoadedModel
from transexplain.reports.evaluation import ScoreTable
from transexplain.reports.heatmap import segments
from transexplain.types.graphs import nodes_of
from transexplain.types.items import Item

SETS = {"superpixels": superpixel_digits, "bace": bace}
#: attention flow where igraph, which finds it, is installed
METHODS = (
    *(["attention-flow"] if find_spec("igraph") else []),
    *("attention-last", "rollout", "gae", "gradient-x-input", "lrp-ah", "lrp-ln", "lrp-ah-ln"),
    *("lrp", "attnlrp"),
)
METRICS = ("activation", "pruning", "conservation", "runtime")
#: AUAC and AU-MSE in tables 1 and 2 of the paper, on its models and its 70,000 digits
PAPER = {
    "superpixels": {
        "random": (0.324, 69.82),
        "attention-last": (0.862, 45.82),
        "rollout": (0.358, 115.2),
        "gae": (0.426, 59.81),
        "gradient-x-input": (0.942, 18.06),
        "lrp-ah": (0.942, 18.03),
        "lrp-ln": (0.947, 17.55),
        "lrp-ah-ln": (0.948, 17.49),
    },
    "bace": {
        "random": (0.624, 1.95),
        "attention-last": (0.620, 1.99),
        "attention-flow": (0.637, 1.87),
        "rollout": (0.653, 1.77),
        "gae": (0.675, 1.66),
        "gradient-x-input": (0.646, 2.06),
        "lrp-ah": (0.645, 2.08),
        "lrp-ln": (0.702, 1.65),
        "lrp-ah-ln": (0.707, 1.61),
    },
}
SHOWN = 5  # graphs in a picture
CELL = 168  # pixels of a digit's side


def main(arguments: Sequence[str] | None = None) -> None:
    """Train or load, evaluate, print, draw."""
    options = _parsed(arguments)
    torch.set_num_threads(options.threads)
    for name in options.sets:
        begun = time.perf_counter()
        below = options.shared / "graphs"
        folder = below if below.is_dir() else options.shared
        given = SETS[name](folder, options.graphs)
        model = _model(name, given, options.out / "models" / name, options.epochs)
        tested = given.parts["test"][: options.items]
        _write_test(options.out / "graphs" / name, given.parts["test"])
        tables = te.evaluate(
            model, _items(tested), methods=METHODS, metrics=METRICS, target="label"
        )
        lines = list(_lines(name, model, tested, tables))
        print("\n".join(lines))
        (options.out / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        _draw(name, model, tested[:SHOWN], folder, options.out)
        print(f"  {time.perf_counter() - begun:.0f} s in all; written to {options.out}\n")


def _model(name: str, given: GraphSet, folder: Path, epochs: int | None) -> LoadedModel:
    if not (folder / "config.json").is_file():
        print(f"training on {len(given.parts['train'])} graphs of {name}")
        recipe = RECIPES[name]
        train(given, recipe if epochs is None else replace(recipe, epochs=epochs), folder)
    return te.load_model(folder)


def _write_test(folder: Path, graphs: Sequence[Graph]) -> None:
    if not (folder / "graphs.parquet").is_file():
        write_graphs(folder, graphs, format="parquet")


def _items(graphs: Sequence[Graph]) -> list[Item]:
    return [
        Item(id=one["id"], index=row, content=one, label=one["label"])
        for row, one in enumerate(graphs)
    ]


def _lines(
    name: str, model: LoadedModel, graphs: Sequence[Graph], tables: Sequence[ScoreTable]
) -> Iterator[str]:
    config = json.loads((Path(model.ref.source) / "config.json").read_text(encoding="utf-8"))
    test = config["quality"]["test"]
    nodes = [len(one["degrees"]) for one in graphs]
    named = ", ".join(f"{key} {value:.3f}" for key, value in test.items() if key != "graphs")
    yield f"{name}: test {named} ({test['graphs']} graphs, epoch {config['epoch']})"
    yield (
        f"  {len(graphs)} test graphs of {min(nodes)} to {max(nodes)} nodes, explained for their "
        "class; mean and 95 % interval, in brackets the paper's figure on its own model"
    )
    found = {table.metric: {row.method: row for row in table.rows} for table in tables}
    yield f"  {'':18}{'AUAC':>29} {'AU-MSE':>29} {'conservation':>13} {'seconds':>9}"
    for method in (*METHODS, "random"):
        cells = []
        for place, metric in enumerate(("activation", "pruning")):
            row, paper = found[metric][method], PAPER[name].get(method)
            beside = f"[{paper[place]:g}]" if paper else ""
            cells.append(f"{_interval(row):>21} {beside:>7}")
        correlation = found["conservation"][method].correlation
        shown = "" if correlation is None else f"{correlation:+.2f}"
        seconds = found["runtime"][method].mean
        yield f"  {method:18}{cells[0]} {cells[1]} {shown:>13} {seconds:>9.4f}"
    for metric, best in (("activation", "highest"), ("pruning", "lowest")):
        yield f"  {metric}, {best} first: {_order(found[metric], PAPER[name], metric)}"


def _interval(row: Any) -> str:
    if row.mean is None:
        return "none"
    sides = "" if row.interval is None else f" {row.interval[0]:.3g}-{row.interval[1]:.3g}"
    return f"{row.mean:.3f}{sides}"


def _order(rows: dict[str, Any], paper: dict[str, tuple[float, float]], metric: str) -> str:
    """The order of the paper's methods here and there, and Spearman's rank correlation."""
    place, sign = (0, -1) if metric == "activation" else (1, 1)
    paper = {method: figures for method, figures in paper.items() if method in rows}
    here = sorted(paper, key=lambda one: sign * rows[one].mean)
    there = sorted(paper, key=lambda one: sign * paper[one][place])
    ranks = [[order.index(one) for one in paper] for order in (here, there)]
    alike = np.corrcoef(ranks)[0, 1]
    return f"{' '.join(here)}; the paper: {' '.join(there)}; rank correlation {alike:+.2f}"


def _draw(name: str, model: LoadedModel, graphs: Sequence[Graph], folder: Path, out: Path) -> None:
    """A sheet of digits by every method, or the structural formulas of molecules by two."""
    by_method = {
        method: [
            nodes_of(one)[1]
            for one in te.explain(model, _items(graphs), method=method, target="label")
        ]
        for method in METHODS
    }
    if name == "bace":
        for row, graph in enumerate(graphs):
            for method in ("lrp-ah-ln", "gradient-x-input"):
                text = molecule_svg(graph["text"], by_method[method][row])
                path = out / f"molecule-{graph['id']}-{graph['label']}-{method}.svg"
                path.write_text(text, encoding="utf-8")
        return
    _sheet(graphs, by_method, folder).save(out / "superpixels.png")


def _sheet(
    graphs: Sequence[Graph], by_method: dict[str, list[np.ndarray]], folder: Path
) -> Image.Image:
    """A row for each digit: itself, then its relevance by every method (appendix G there)."""
    gap, head = 8, 26
    size = (gap + (1 + len(by_method)) * (CELL + gap), head + len(graphs) * (CELL + gap))
    page = Image.new("RGB", size, "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(size=14)
    for column, title in enumerate(("digit", *by_method)):
        pen.text((gap + column * (CELL + gap), 5), title, "black", font)
    for row, graph in enumerate(graphs):
        picture = picture_of(folder, graph["id"])
        ink = np.repeat(np.repeat(1 - picture, CELL // 28, 0), CELL // 28, 1)
        parts = superpixels(picture, segments=SEGMENTS).parts
        cells = [Image.fromarray(np.rint(255 * ink).astype(np.uint8))]
        for values in by_method.values():
            cells.append(segments(values[row], parts, picture=0.8 + 0.2 * ink, alpha=0.1))
        for column, cell in enumerate(cells):
            page.paste(cell, (gap + column * (CELL + gap), head + row * (CELL + gap)))
    return page


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shared", type=Path, required=True, help="folder of the data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--items", type=int, default=None, help="test graphs; default: all")
    parser.add_argument("--graphs", type=int, default=None, help="of a set; default: all")
    parser.add_argument("--epochs", type=int, default=None, help="default: of the recipe")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
