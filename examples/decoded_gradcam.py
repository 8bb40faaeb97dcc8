"""Hiding and revealing games for layer methods: which layer, and which tokens, carry the class?

    python examples/decoded_gradcam.py --model DIR --head DIR --data dev.tsv --items 100

Every sentence of the data (`label<TAB>text` with a header line, .gz or not) is explained by
layer-gradcam and decoded-gradcam at every layer, and once by lrp and random. A method then names
the top 10, 20, ... 50 % of the tokens, and two games are played with them (after Hou and Castanon
2023): hiding takes them out of the text and revealing takes out all others. `[MASK]` puts the mask
token in their place; `removed` closes the attention to them instead. What is printed is the mean
probability of the class that the whole text had. Hiding is better low, revealing better high.
"""

import argparse
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import transexplain as te
from transexplain.models.base import Batch, LoadedModel
from transexplain.models.blocks import run_layers
from transexplain.models.probe import logits_of
from transexplain.types import Attribution, Item

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
Mask = NDArray[np.bool_]


def main() -> None:
    """Read the sentences, explain them, play, print one table per game."""
    options = arguments()
    model = te.load_model(options.model)
    items = list(read(options.data))[: options.items]
    methods: list[tuple[str, dict[str, Any]]] = [("lrp", {}), ("random", {})]
    for layer in range(count_layers(model, items[0])):
        methods.append(("layer-gradcam", {"layer": layer}))
        methods.append(("decoded-gradcam", {"layer": layer, "head": options.head}))
    players = [(label(*method), te.explain(model, items, method[0], **method[1]))
               for method in methods]  # fmt: skip
    print(f"{len(items)} sentences of {options.data}, {options.model}")
    for removed in (False, True):
        for game in ("hiding", "revealing"):
            print(f"\n{game}, {'removed from attention' if removed else '[MASK]'}")
            print_table(model, players, revealing=game == "revealing", removed=removed)


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, help="directory or hub id of the classifier")
    parser.add_argument("--head", help="directory of its masked language model; default: the model")
    parser.add_argument("--data", required=True, help="label<TAB>text, with a header line")
    parser.add_argument("--items", type=int, default=100, help="sentences from the top")
    return parser.parse_args()


def read(path: str) -> Iterator[Item]:
    """The sentences of a TSV file, gzipped or not."""
    given = Path(path).read_bytes()
    text = (gzip.decompress(given) if path.endswith(".gz") else given).decode()
    for number, line in enumerate(text.splitlines()[1:]):
        name, _, sentence = line.partition("\t")
        yield Item(id=str(number), index=number, content=sentence, label=name)


def count_layers(model: LoadedModel, item: Item) -> int:
    """How many layers a forward pass calls."""
    return len(run_layers(model, batch_of(model, [item])).outputs)


def label(method: str, params: dict[str, Any]) -> str:
    """A row's name."""
    return f"{method} {params['layer']}" if "layer" in params else method


def print_table(
    model: LoadedModel,
    players: list[tuple[str, list[Attribution]]],
    *,
    revealing: bool,
    removed: bool,
) -> None:
    """Probability of the predicted class per method and share of tokens, and how often it stays."""
    heads = "".join(f"{share:>7.0%}" for share in SHARES)
    print(f"{'probability at top':<20}{heads}   mean   class kept (mean)")
    for name, attributions in players:
        found = [play(model, attributions, share, revealing=revealing, removed=removed)
                 for share in SHARES]  # fmt: skip
        probabilities, kept = (np.array(column) for column in zip(*found, strict=True))
        row = "".join(f"{value:>7.3f}" for value in probabilities)
        print(f"{name:<20}{row}{probabilities.mean():>7.3f}   {kept.mean():.3f}")


def play(
    model: LoadedModel,
    attributions: list[Attribution],
    share: float,
    *,
    revealing: bool,
    removed: bool,
    batch_items: int = 32,
) -> tuple[float, float]:
    """Mean probability of the class that was explained, and how often it is still predicted."""
    probabilities, kept = [], []
    for begin in range(0, len(attributions), batch_items):
        some = attributions[begin : begin + batch_items]
        items = [Item(id=one.item_id, index=0, content=one.text) for one in some]
        batch = batch_of(model, items)
        out = np.zeros(tuple(batch.inputs["input_ids"].shape), dtype=bool)
        for row, one in enumerate(some):
            top, content = top_tokens(one, share)
            out[row, : len(top)] = content & ~top if revealing else top
        logits = logits_of(model.module, model.caller, without(model, batch, out, removed=removed))
        classes = torch.tensor([one.class_index for one in some])
        probabilities += logits.softmax(-1).gather(1, classes[:, None])[:, 0].tolist()
        kept += (logits.argmax(-1) == classes).tolist()
    return float(np.mean(probabilities)), float(np.mean(kept))


def top_tokens(one: Attribution, share: float) -> tuple[Mask, Mask]:
    """(T,) the `share` of the tokens with most relevance, and which tokens are no special ones.

    At least one token; the earlier of two equals goes first.
    """
    assert isinstance(one.features, tuple)
    content = np.array([not token.special for token in one.features])
    scores = np.where(content, one.relevance, -np.inf)
    count = max(1, round(share * int(content.sum())))
    top = np.zeros(len(content), dtype=bool)
    top[np.argsort(-scores, kind="stable")[:count]] = True
    return top & content, content


def without(
    model: LoadedModel, batch: Batch, out: Mask, *, removed: bool
) -> dict[str, torch.Tensor]:
    """The inputs of a batch with the tokens `out` (B, T) masked, or removed from attention."""
    hidden = torch.from_numpy(out)
    if removed:
        attention = batch.inputs["attention_mask"].masked_fill(hidden, 0)
        return {**batch.inputs, "attention_mask": attention}
    mask = model.encoder.tokenizer.mask_token_id  # type: ignore[attr-defined]
    return {**batch.inputs, "input_ids": batch.inputs["input_ids"].masked_fill(hidden, mask)}


def batch_of(model: LoadedModel, items: list[Item]) -> Batch:
    """One batch of texts; every one must be encodable."""
    return model.collate(model.encode(items))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
