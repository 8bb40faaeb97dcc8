"""Tables 1 and 2 of Ali et al. 2022 on texts, on a network of the kind that the authors used.

    python -m benchmarks.attention_only --shared DIR --out DIR [--sets sst2 emotion hate]
                                        [--texts N] [--epochs N] [--items N]

The authors' released network is no BERT encoder: three blocks of self-attention and a norm, without
feed-forward layers, behind the embeddings of a pretrained BERT. Here it has the word embeddings of
`models/minilm-sst2` below --shared, which stay as they are, and is trained on the training part of
each set in `text/` (or read from --out, where an earlier call left it): SST-2, and TweetEval's
emotion and hate. Texts of the development or test part are explained for their label; tokens are
replaced by UNK. Attention flow needs `pip install '.[flow]'`.
"""

import argparse
import csv
import gzip
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class TextSet:
    """A column of the tables: files below `text/`, classes in the order of their numbers."""

    train: str
    tested: str
    classes: tuple[str, ...]
    epochs: int  #: unless the command line says otherwise
    paper: Mapping[str, tuple[float, float]]  #: AUAC and AU-MSE


SETS = {
    "sst2": TextSet(
        train="sst2_train",
        tested="sst2_dev",
        classes=("negative", "positive"),
        epochs=3,
        paper={
            "random": (0.664, 3.97),
            "attention-last": (0.712, 2.56),
            "attention-flow": (0.711, 2.52),
            "rollout": (0.713, 2.43),
            "gae": (0.821, 2.26),
            "gradient-x-input": (0.847, 2.10),
            "lrp-ah": (0.855, 2.02),
            "lrp-ln": (0.907, 1.78),
            "lrp-ah-ln": (0.908, 1.56),
        },
    ),
    "emotion": TextSet(
        train="tweeteval_emotion_train",
        tested="tweeteval_emotion_test",
        classes=("anger", "joy", "optimism", "sadness"),
        epochs=10,
        paper={
            "random": (0.516, 4.25),
            "attention-last": (0.542, 3.73),
            "rollout": (0.554, 2.85),
            "gae": (0.675, 2.21),
            "gradient-x-input": (0.652, 2.09),
            "lrp-ah": (0.675, 1.83),
            "lrp-ln": (0.735, 1.55),
            "lrp-ah-ln": (0.750, 1.47),
        },
    ),
    "hate": TextSet(
        train="tweeteval_hate_train",
        tested="tweeteval_hate_val",
        classes=("not-hate", "hate"),
        epochs=6,
        paper={
            "random": (0.640, 9.12),
            "attention-last": (0.663, 7.77),
            "rollout": (0.659, 6.55),
            "gae": (0.762, 7.40),
            "gradient-x-input": (0.772, 6.69),
            "lrp-ah": (0.797, 6.43),
            "lrp-ln": (0.829, 5.02),
            "lrp-ah-ln": (0.838, 4.88),
        },
    ),
}
BATCH, RATE = 64, 5e-4
HELD_OUT = 1000  #: texts that choose the epoch, at most a tenth of what there is


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
        self,
        embeddings: nn.Module,
        hidden: int,
        *,
        classes: int = 2,
        blocks: int = 3,
        heads: int = 12,
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(blocks))
        self.pooler, self.classifier = nn.Linear(hidden, hidden), nn.Linear(hidden, classes)

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
    source = options.shared / "models" / "minilm-sst2"
    tokenizer = AutoTokenizer.from_pretrained(source)
    for name in options.sets:
        one = SETS[name]
        network = _network(name, source, tokenizer, options)
        model = te.wrap(network, modality="text", tokenizer=tokenizer, classes=one.classes)
        rows = _rows(options.shared, one.tested)
        right = _accuracy(network, tokenizer, rows)
        print(f"{name}: accuracy on {len(rows)} texts of {one.tested} {right:.3f}")
        items = [
            Item(id=str(n), index=n, content=text, label=one.classes[label])
            for n, (label, text) in enumerate(rows[: options.items])
        ]
        print("\n".join(_lines(model, items, one.paper)), flush=True)


def _network(name: str, source: Path, tokenizer: Any, options: Any) -> AttentionOnly:
    """Read from --out, or trained and written there."""
    torch.manual_seed(0)
    one = SETS[name]
    base = AutoModelForSequenceClassification.from_pretrained(source, dtype=torch.float32)
    embeddings = base.bert.embeddings.eval()
    network = AttentionOnly(embeddings, base.config.hidden_size, classes=len(one.classes))
    network.embeddings.requires_grad_(False)
    weights = options.out / f"{name}.safetensors"
    if weights.is_file():
        network.load_state_dict(load_file(weights))
    else:
        rows = _rows(options.shared, one.train)
        train(network, tokenizer, rows, options.texts, options.epochs or one.epochs)
        options.out.mkdir(parents=True, exist_ok=True)
        learned = {key: part.contiguous() for key, part in network.state_dict().items()}
        save_file(learned, weights)
    return network.eval()


def train(
    network: AttentionOnly, tokenizer: Any, rows: list[tuple[int, str]], texts: int, epochs: int
) -> None:
    """AdamW with a cosine; the weights of the epoch that is best on texts held out are kept.

    Args:
        network, tokenizer: what is trained, and what reads its texts.
        rows: labels and texts; some are held out, of the others at most `texts` are used.
        texts, epochs: how much it sees.
    """
    order = np.random.default_rng(0).permutation(len(rows))
    count = min(HELD_OUT, len(rows) // 10)
    held, used = order[:count], order[count : count + texts]
    given = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(given, lr=RATE, weight_decay=0.01)
    steps = epochs * -(-len(used) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, RATE, total_steps=steps, pct_start=0.1
    )
    best, kept, begun = -1.0, {}, time.perf_counter()
    for epoch in range(epochs):
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


def _lines(
    model: LoadedModel, items: list[Item], paper: Mapping[str, tuple[float, float]]
) -> Iterator[str]:
    unk = {"baseline": "unk"}
    metrics = [MetricSpec(name="auac", params=unk), MetricSpec(name="pruning", params=unk)]
    tables = te.evaluate(model, items, METHODS, [*metrics, "conservation"], "label")
    compared = [one for one in ("random", *METHODS) if one in paper]
    found = {table.metric: {row.method: row for row in table.rows} for table in tables}
    yield f"  {len(items)} texts, explained for their label; mean and 95 % interval [the paper's]"
    yield f"  {'':18}{'AUAC':>30} {'AU-MSE':>30} {'conservation':>13}"
    for method in ("random", *METHODS):
        cells = []
        for place, metric in enumerate(("auac", "pruning")):
            row = found[metric][method]
            low, high = row.interval or (np.nan, np.nan)
            beside = f" [{paper[method][place]:g}]" if method in paper else ""
            cells.append(f"{row.mean:.3f} {low:.3f} to {high:.3f}{beside}")
        correlation = found["conservation"][method].correlation
        shown = "" if correlation is None else f"{correlation:+.2f}"
        yield f"  {method:18}{cells[0]:>30} {cells[1]:>30} {shown:>13}"
    for metric, place, sign in (("auac", 0, -1), ("pruning", 1, 1)):
        here, there = (
            [sign * figure for figure in figures]
            for figures in (
                [found[metric][one].mean for one in compared],
                [paper[one][place] for one in compared],
            )
        )
        ranks = [np.argsort(np.argsort(one)) for one in (here, there)]
        alike = np.corrcoef(ranks)[0, 1]
        yield f"  {metric}: rank correlation with the paper's order {alike:+.2f}"


def _rows(shared: Path, name: str) -> list[tuple[int, str]]:
    path = shared / "text" / f"{name}.tsv.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(int(row["label"]), row["text"].strip()) for row in reader]


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shared", type=Path, required=True, help="folder of data and models")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--texts", type=int, default=30_000, help="of a training part, at most")
    parser.add_argument("--epochs", type=int, help="default: 3 of SST-2, 10 of emotion, 6 of hate")
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
