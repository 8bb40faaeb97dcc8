"""Explain a graph transformer: which superpixels of a digit speak for its class.

Every digit of scikit-learn becomes a graph: its nodes are superpixels, its edges join neighbours.
A small Graphormer (Ying et al. 2021) learns to read them, and LRP (Ali et al. 2022, section 5.1)
says what each superpixel adds to the logit. To check that, superpixels are removed in the order
of their relevance and at random.

    python examples/graph_superpixels.py --output superpixels.png
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from graph_digits import FEATURES, SIDE, Array, Digit, digits, stacked, without
from PIL import Image, ImageDraw, ImageFont
from torch.nn import functional as F

import transexplain as te
from transexplain.extras.graphs.graph_transformer import GraphTransformer
from transexplain.reports.heatmap import segments
from transexplain.types.items import Attribution

TEST = 400  # digits that are not learned from
SHARES = np.linspace(0.0, 0.9, 10)  # of the superpixels removed


def train(network: GraphTransformer, learned: Sequence[Digit], epochs: int, seed: int = 0) -> None:
    """Fit the network by cross-entropy, with AdamW and one cycle of the learning rate."""
    random = np.random.default_rng(seed)
    size = min(64, len(learned))
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=2e-3, total_steps=epochs * (len(learned) // size)
    )
    network.train()
    for _ in range(epochs):
        order = random.permutation(len(learned))
        for first in range(0, len(order) - size + 1, size):
            chosen = [learned[index] for index in order[first : first + size]]
            logits = network(**stacked([_varied(digit.graph, random) for digit in chosen]))
            loss = F.cross_entropy(logits, torch.tensor([digit.label for digit in chosen]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    network.eval()


def _varied(graph: Mapping[str, Array], random: np.random.Generator) -> dict[str, Array]:
    """The graph with small changes and without some of its nodes, so that none is memorised.

    A network that was trained on graphs with gaps can also be evaluated on graphs with removed
    nodes, which checks the relevance.
    """
    gone = np.flatnonzero(random.random(len(graph["degrees"])) < random.uniform(0.0, 0.3))
    varied = without(graph, gone) if len(gone) < len(graph["degrees"]) else dict(graph)
    noise = 0.05 * random.standard_normal(varied["node_features"].shape)
    noise[:, 1:3] += 0.1 * random.standard_normal(2)
    varied["node_features"] = (varied["node_features"] + noise).astype(np.float32)
    return varied


@torch.no_grad()
def logits_of(network: GraphTransformer, graphs: Sequence[Mapping[str, Array]]) -> Array:
    """(N, C) logits, in batches."""
    parts = (graphs[first : first + 256] for first in range(0, len(graphs), 256))
    return np.concatenate([network(**stacked(part)).numpy() for part in parts])


def node_relevance(attribution: Attribution) -> Array:
    """(T,) the relevance of the nodes, without the virtual node's."""
    nodes = [not token.special for token in attribution.features]
    return attribution.relevance[np.array(nodes)]


def pruning_curve(
    network: GraphTransformer, tested: Sequence[Digit], orders: Sequence[Array]
) -> Array:
    """The mean logit of the class that was predicted, after each share of nodes went, in order."""
    found = logits_of(network, [digit.graph for digit in tested]).argmax(axis=1)
    curve = []
    for share in SHARES:
        pruned = [
            without(digit.graph, order[: int(share * len(order))])
            for digit, order in zip(tested, orders, strict=True)
        ]
        curve.append(logits_of(network, pruned)[np.arange(len(tested)), found].mean())
    return np.array(curve)


def area(curve: Array) -> float:
    """The mean height of a curve over `SHARES`; lower: the logit falls sooner."""
    return float(np.trapezoid(curve, SHARES) / (SHARES[-1] - SHARES[0]))


def sheet(shown: Sequence[Digit], found: Sequence[Attribution], cell: int = 176) -> Image.Image:
    """One column for each digit: itself, its superpixels, their relevance.

    Red speaks for the class on top and blue against it, on one scale for all.
    """
    gap, head = 12, 30
    page = Image.new("RGB", (gap + len(shown) * (cell + gap), head + 3 * (cell + gap)), "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(size=15)
    scale = max(float(np.abs(node_relevance(one)).max()) for one in found)
    for place, (digit, one) in enumerate(zip(shown, found, strict=True)):
        ink = np.repeat(np.repeat(1.0 - digit.picture, cell // SIDE, 0), cell // SIDE, 1)
        blank = np.zeros(digit.parts.max() + 1)
        rows = (
            Image.fromarray(np.rint(255 * ink).astype(np.uint8)),
            segments(blank, digit.parts, picture=ink),
            te.render.segments(one, digit.parts, 0.8 + 0.2 * ink, alpha=0.1, scale=scale),
        )
        left = gap + place * (cell + gap)
        pen.text(
            (left, 6), f"{digit.label}, read as {one.class_name} ({one.logit:+.1f})", "black", font
        )
        for row, picture in enumerate(rows):
            page.paste(picture, (left, head + row * (cell + gap)))
    return page


def _lines(
    network: GraphTransformer, tested: Sequence[Digit], shown: int, output: Path
) -> Iterator[str]:
    """Explain the digits, write the sheet, and say what was measured."""
    model = te.wrap(network, modality="nodes", classes=[str(number) for number in range(10)])
    found = te.explain(model, [digit.graph for digit in tested])
    gaps = [one.ledger.relative_gap for one in found]
    yield f"ledger of {len(found)} graphs: largest gap {max(gaps):.1e} of the sum of |terms|"
    for one in found[:shown]:
        ledger = one.ledger
        yield (
            f"  read as {one.class_name}: logit {one.logit:+.3f} = nodes {ledger.inputs:+.3f}, "
            f"virtual node {ledger.special:+.3f}, biases {ledger.biases:+.3f}, "
            f"rules {ledger.rules:+.3f}, gap {ledger.gap:+.1e}"
        )
    random = np.random.default_rng(0)
    by_relevance = [np.argsort(-node_relevance(one)) for one in found]
    at_random = [random.permutation(len(order)) for order in by_relevance]
    curves = [pruning_curve(network, tested, orders) for orders in (by_relevance, at_random)]
    for name, curve in zip(("most relevant first", "at random"), curves, strict=True):
        steps = " ".join(f"{value:+.1f}" for value in curve)
        yield f"nodes removed {name}: mean logit {steps}; area {area(curve):+.2f}"
    sheet(tested[:shown], found[:shown]).save(output)
    yield f"wrote {output}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, explain, check and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("superpixels.png"))
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--digits", type=int, default=None, help="default: all 1,797")
    parser.add_argument("--explained", type=int, default=200, help="test digits that are explained")
    parser.add_argument("--shown", type=int, default=6, help="test digits that are drawn")
    given = parser.parse_args(arguments)
    begun = time.perf_counter()
    made = digits(given.digits)
    tests = min(TEST, len(made) // 4)
    learned, tested = made[:-tests], made[-tests:]
    sizes = [len(digit.graph["degrees"]) for digit in made]
    print(f"{len(made)} graphs of {min(sizes)} to {max(sizes)} superpixels")
    torch.manual_seed(0)
    network = GraphTransformer(width=FEATURES, classes=10, hidden=48, layers=2)
    train(network, learned, given.epochs)
    answers = logits_of(network, [digit.graph for digit in tested]).argmax(axis=1)
    right = np.mean([answer == digit.label for answer, digit in zip(answers, tested, strict=True)])
    print(f"{right:.1%} of {tests} test digits, after {time.perf_counter() - begun:.0f} s")
    for line in _lines(network, tested[: given.explained], given.shown, given.output):
        print(line)


if __name__ == "__main__":
    main()
