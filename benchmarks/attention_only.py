"""Tables 1 and 2 of Ali et al. 2022 on SST-2, on a network of the kind that the authors used.

    python -m benchmarks.attention_only --shared DIR --out DIR [--phrases N] [--epochs N]
                                        [--items N]

The authors' released network is no BERT encoder: three blocks of self-attention and a norm, without
feed-forward layers, behind the embeddings of a pretrained BERT. Here it has the word embeddings of
`models/minilm-sst2` below --shared, which stay as they are, and is trained on
`text/sst2_train.tsv.gz` (or read from --out, where an earlier call left it). Sentences of
`text/sst2_dev.tsv.gz` are explained for their label; tokens are replaced by UNK. Attention flow
needs `pip install 'transexplain[flow]'`.
"""

import argparse
import csv
import gzip
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import transexplain as te
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.items import Item
from transexplain.types.scores import MetricSpec

METHODS = (
    "attention-last",
    *(["attention-flow"] if find_spec("igraph") else []),
    *("rollout", "gae", "gradient-x-input", "lrp-ah", "lrp-ln", "lrp-ah-ln"),
)
#: AUAC and AU-MSE of the paper
PAPER = {
    "random": (0.664, 3.97),
    "attention-last": (0.712, 2.56),
    "attention-flow": (0.711, 2.52),
    "rollout": (0.713, 2.43),
    "gae": (0.821, 2.26),
    "gradient-x-input": (0.847, 2.10),
    "lrp-ah": (0.855, 2.02),
    "lrp-ln": (0.907, 1.78),
    "lrp-ah-ln": (0.908, 1.56),
}
BATCH, RATE, HELD_OUT = 64, 5e-4, 1000
CLASSES = ("negative", "positive")


class Block(nn.Module):
    """norm(W_o attention(x) + b_o + x); the norm has no weights (Ali et al. 2022, section 3)."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.value, self.output = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)

    def forward(self, x: Tensor, absent: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D); `absent` (B, 1, 1, T) is added to the scores."""
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        weights = torch.softmax(q @ k.transpose(-1, -2) + absent, dim=-1)
        x = self.output((weights @ v).transpose(1, 2).flatten(2)) + x
        centred = x - x.mean(-1, keepdim=True)
        return centred / (x.std(-1, keepdim=True) + 1e-12)


class AttentionOnly(nn.Module):
    """Embeddings, blocks, a tanh pooler on the class token and a linear classifier."""

    def __init__(
        self, embeddings: nn.Module, hidden: int, blocks: int = 3, heads: int = 12
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(blocks))
        self.pooler, self.classifier = nn.Linear(hidden, hidden), nn.Linear(hidden, len(CLASSES))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """(B, T) -> logits (B, C)."""
        x = self.embeddings(input_ids=input_ids)
        absent = (1.0 - attention_mask.to(x.dtype))[:, None, None] * -1e4
        for block in self.blocks:
            x = block(x, absent)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


def main(arguments: Sequence[str] | None = None) -> None:
    """Train or load, evaluate, print."""
    options = _parsed(arguments)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    source = options.shared / "models" / "minilm-sst2"
    base = AutoModelForSequenceClassification.from_pretrained(source, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(source)
    network = AttentionOnly(base.bert.embeddings.eval(), base.config.hidden_size)
    network.embeddings.requires_grad_(False)
    weights = options.out / "attention-only.safetensors"
    if weights.is_file():
        network.load_state_dict(load_file(weights))
    else:
        train(network, tokenizer, _rows(options.shared, "train"), options)
        options.out.mkdir(parents=True, exist_ok=True)
        save_file({name: one.contiguous() for name, one in network.state_dict().items()}, weights)
    network.eval()
    model = te.wrap(network, modality="text", tokenizer=tokenizer, classes=CLASSES)
    rows = _rows(options.shared, "dev")
    right = _accuracy(network, tokenizer, rows)
    print(f"accuracy on {len(rows)} sentences of the development set {right:.3f}")
    items = [
        Item(id=str(n), index=n, content=text, label=CLASSES[label])
        for n, (label, text) in enumerate(rows[: options.items])
    ]
    print("\n".join(_lines(model, items)))


def train(
    network: AttentionOnly, tokenizer: Any, rows: list[tuple[int, str]], options: Any
) -> None:
    """AdamW with a cosine; the weights of the epoch that is best on phrases held out are kept."""
    order = np.random.default_rng(0).permutation(len(rows))
    held, used = order[:HELD_OUT], order[HELD_OUT : HELD_OUT + options.phrases]
    given = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(given, lr=RATE, weight_decay=0.01)
    steps = options.epochs * -(-len(used) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, RATE, total_steps=steps, pct_start=0.1
    )
    best, kept, begun = 0.0, {}, time.perf_counter()
    for epoch in range(options.epochs):
        network.train()
        network.embeddings.eval()
        for batch in _batches([rows[one] for one in used], epoch):
            optimizer.zero_grad()
            labels = torch.tensor([label for label, _ in batch])
            F.cross_entropy(_logits(network, tokenizer, batch), labels).backward()
            nn.utils.clip_grad_norm_(given, 1.0)
            optimizer.step()
            schedule.step()
        found = _accuracy(network, tokenizer, [rows[one] for one in held])
        print(
            f"  epoch {epoch + 1}: {found:.3f} held out, {time.perf_counter() - begun:.0f} s",
            flush=True,
        )
        if found > best:
            best, kept = found, {name: one.clone() for name, one in network.state_dict().items()}
    network.load_state_dict(kept)


def _batches(rows: list[tuple[int, str]], seed: int) -> Iterator[list[tuple[int, str]]]:
    """Texts of like length together, in random order."""
    random = np.random.default_rng(seed)
    shuffled = [rows[one] for one in random.permutation(len(rows))]
    shuffled.sort(key=lambda row: row[1].count(" "))
    starts = random.permutation(np.arange(0, len(rows), BATCH)).tolist()
    yield from (shuffled[start : start + BATCH] for start in starts)


def _logits(network: AttentionOnly, tokenizer: Any, batch: list[tuple[int, str]]) -> Tensor:
    texts = [text for _, text in batch]
    given = tokenizer(texts, padding=True, truncation=True, max_length=64, return_tensors="pt")
    found: Tensor = network(given["input_ids"], given["attention_mask"])
    return found


@torch.no_grad()
def _accuracy(network: AttentionOnly, tokenizer: Any, rows: list[tuple[int, str]]) -> float:
    network.eval()
    right = 0
    for batch in _batches(rows, 0):
        labels = torch.tensor([label for label, _ in batch])
        right += int((_logits(network, tokenizer, batch).argmax(-1) == labels).sum())
    return right / len(rows)


def _lines(model: LoadedModel, items: list[Item]) -> Iterator[str]:
    unk = {"baseline": "unk"}
    metrics = [MetricSpec(name="auac", params=unk), MetricSpec(name="pruning", params=unk)]
    tables = te.evaluate(model, items, METHODS, [*metrics, "conservation"], "label")
    found = {table.metric: {row.method: row for row in table.rows} for table in tables}
    yield f"{len(items)} sentences, explained for their label; mean and 95 % interval [the paper's]"
    yield f"  {'':18}{'AUAC':>30} {'AU-MSE':>30} {'conservation':>13}"
    for method in ("random", *METHODS):
        cells = []
        for place, metric in enumerate(("auac", "pruning")):
            row = found[metric][method]
            low, high = row.interval or (np.nan, np.nan)
            cells.append(f"{row.mean:.3f} {low:.3f} to {high:.3f} [{PAPER[method][place]:g}]")
        correlation = found["conservation"][method].correlation
        shown = "" if correlation is None else f"{correlation:+.2f}"
        yield f"  {method:18}{cells[0]:>30} {cells[1]:>30} {shown:>13}"
    for metric, place, sign in (("auac", 0, -1), ("pruning", 1, 1)):
        here, there = (
            [sign * figure for figure in figures]
            for figures in (
                [found[metric][one].mean for one in ("random", *METHODS)],
                [PAPER[one][place] for one in ("random", *METHODS)],
            )
        )
        ranks = [np.argsort(np.argsort(one)) for one in (here, there)]
        alike = np.corrcoef(ranks)[0, 1]
        yield f"  {metric}: rank correlation with the paper's order {alike:+.2f}"


def _rows(shared: Path, split: str) -> list[tuple[int, str]]:
    path = shared / "text" / f"sst2_{split}.tsv.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(int(row["label"]), row["text"].strip()) for row in reader]


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shared", type=Path, required=True, help="folder of data and models")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--phrases", type=int, default=30_000, help="of the training set")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
