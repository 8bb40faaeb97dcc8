"""Six methods that were corrected to their papers' equations: figures of this version or another.

    python -m benchmarks.corrected_rows --shared DIR --out FILE.npz [--beside FILE.npz]
                                        [--texts N] [--pictures N]

Explains the first sentences of SST-2's development set and the first CIFAR-10 test pictures of
every class with the models below --shared. --out keeps the relevance; with --beside the rank
correlation with such a file is printed. To measure an earlier version, run this file on its code:

    PYTHONPATH=CHECKOUT python benchmarks/corrected_rows.py --shared DIR --out then.npz
"""

import argparse
import csv
import gzip
import io
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy.stats import spearmanr

import transexplain as te
from transexplain.types.scores import EvaluatedMethod, MethodSpec, MetricSpec

GAMMA = {"gamma": 0.25, "epsilon": 0.01, "gamma_form": "transexplain"}
METHODS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "gradient-x-input": ("gradient-x-input", {}),
    "lrp": ("lrp", {}),
    "gamma": ("lrp", GAMMA),
    "decoded-gradcam": ("decoded-gradcam", {"layer": 4}),
    "no gradient": ("transformer-attribution", {"gradient": False}),
    "attention-gradcam": ("attention-gradcam", {}),
}
_AMPLIFIED = re.compile(r"amplified relevance up to ([\d.e+]+)-fold")


def main(arguments: Sequence[str] | None = None) -> None:
    """Explain, print, keep."""
    options = _parsed(arguments)
    torch.set_num_threads(options.threads)
    models, kept = options.shared / "models", {}
    before = {} if options.beside is None else dict(np.load(options.beside))
    texts = _texts(options.shared / "text" / "sst2_dev.tsv.gz", options.texts)
    pictures = _pictures(options.shared / "images" / "cifar10_jpg.zip", options.pictures)
    sets = (("texts", "minilm-sst2", texts, "mask"), ("pictures", "vit-cifar10", pictures, "black"))
    for name, source, items, baseline in sets:
        model = te.load_model(models / source)
        methods = dict(METHODS)
        if name == "texts":
            methods["decoded-gradcam"][1]["head"] = str(models / "minilm-mlm-head")
        else:
            del methods["decoded-gradcam"]
        areas = _areas(model, items, methods, baseline)
        print(f"{len(items)} {name}; AUAC of random relevance {areas['random']:.3f}")
        for label, (method, params) in methods.items():
            found = te.explain(model, items, method=method, **params)
            kept |= {f"{name} {label} {n}": one.relevance for n, one in enumerate(found)}
            figures = [f"AUAC {areas[label]:.3f}", *_figures(found)]
            figures += _agreement(found, f"{name} {label}", before)
            print(f"  {label}: {'; '.join(figures)}", flush=True)
            if name == "pictures" and label == "lrp":
                print(f"  overlay with alpha 1, of 255: {_changed(found, items):.1f}")
    np.savez_compressed(options.out, **kept)


def _areas(
    model: Any, items: list[Any], methods: Mapping[str, tuple[str, dict[str, Any]]], baseline: str
) -> dict[str, float]:
    """AUAC by label; random relevance is one draw, as in versions that knew no others."""
    rows = {**methods, "random": ("random", {})}
    evaluated = [
        EvaluatedMethod(label=label, method=MethodSpec(name=method, params=params))
        for label, (method, params) in rows.items()
    ]
    metric = MetricSpec(name="activation", params={"baseline": baseline})
    (table,) = te.evaluate(model, items, evaluated, [metric])
    return {row.method: row.mean for row in table.rows}


def _figures(found: Sequence[Any]) -> Iterator[str]:
    """Sums of relevance beside the logits, what special positions hold, what the books leave."""
    logits = np.array([one.logit for one in found])
    own = [np.asarray(one.relevance, float) for one in found]
    special = [np.array(one.prefix_relevance, float) for one in found]  # of pictures
    for place, one in enumerate(found):
        if hasattr(one.features, "__len__"):  # tokens
            marked = np.array([token.special for token in one.features])
            special[place], own[place] = own[place][marked], own[place][~marked]
    sums = np.array([a.sum() + b.sum() for a, b in zip(own, special, strict=True)])
    sizes = np.array([abs(a).sum() + abs(b).sum() for a, b in zip(own, special, strict=True)])
    yield f"sum {sums.mean():.3g}, correlation {np.corrcoef(sums, logits)[0, 1]:+.2f}"
    yield f"mean error {np.mean(abs(sums - logits) / abs(logits)):.3g}"
    yield f"sizes over the logit, median {np.median(sizes / abs(logits)):.2g}"
    held = [abs(b).sum() / size for b, size in zip(special, sizes, strict=True) if size]
    yield f"special positions {np.mean(held):.3f}"
    if found[0].ledger is not None:
        yield f"gap of the books {np.mean([one.ledger.relative_gap for one in found]):.2g}"
    noted = [_AMPLIFIED.search(" ".join(one.notes)) for one in found]
    factors = [float(one[1]) for one in noted if one]
    if factors:
        yield f"amplified {np.median(factors):.2g} (median), {max(factors):.2g} (largest)"


def _agreement(found: Sequence[Any], key: str, before: Mapping[str, Any]) -> Iterator[str]:
    pairs = [(one.relevance, before.get(f"{key} {n}")) for n, one in enumerate(found)]
    ranks = [
        spearmanr(np.ravel(now), np.ravel(then)).statistic
        for now, then in pairs
        if then is not None and np.ptp(now) and np.ptp(then)
    ]
    if ranks:
        yield f"rank correlation with --beside, median {np.median(ranks):.2f}"


def _changed(found: Sequence[Any], pictures: Sequence[Image.Image]) -> float:
    """Mean difference between an overlay with alpha 1 and the picture, in steps of 255."""
    drawn = [te.render.overlay(one, picture, size=None, alpha=1.0)
             for one, picture in zip(found, pictures, strict=True)]  # fmt: skip
    apart = [np.abs(np.asarray(a, float) - np.asarray(b, float)).mean()
             for a, b in zip(drawn, pictures, strict=True)]  # fmt: skip
    return float(np.mean(apart))


def _texts(path: Path, count: int) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [row["text"] for row, _ in zip(rows, range(count), strict=False)]


def _pictures(path: Path, count: int) -> list[Image.Image]:
    """As many of every class, in the order of classes and names."""
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if re.match(r"test/\w+/\d+\.jpg", name))
        folders = sorted({name.rpartition("/")[0] for name in names})
        each = -(-count // len(folders))
        chosen = [
            name
            for folder in folders
            for name in [one for one in names if one.startswith(f"{folder}/")][:each]
        ]
        return [Image.open(io.BytesIO(archive.read(name))).convert("RGB") for name in chosen]


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shared", type=Path, required=True, help="folder of data and models")
    parser.add_argument("--out", type=Path, required=True, help="relevance of every item (.npz)")
    parser.add_argument("--beside", type=Path, help="what another version left")
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--pictures", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
