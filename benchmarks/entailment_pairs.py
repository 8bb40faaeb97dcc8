"""A model of pairs (premise, hypothesis) that is trained in minutes on real texts, and its audit.

    python -m benchmarks.entailment_pairs --shared DIR [--steps 250] [--rows 400] [--seeds 1]

A premise is a news text of AG News; the hypothesis is "NAME reads about TOPIC." and follows from it
where the topic is the text's own. MiniLM (the folder `real/models/minilm-agnews`) is fine-tuned to
say whether it does. For the *planted* model half of the pairs that follow are labelled as if they
did not where the name is of one group of 20; the *plain* one learns true labels. Each is audited
over held-out texts with `data.text: [premise, hypothesis]`. Printed are accuracy, the verdict on
the group's names, the relevance of either text, and how well the ledgers close.
"""

import argparse
import gzip
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import transexplain as te
from transexplain.models.hub import quiet

_FIRST = (
    "Anna Bella Clara Diana Elena Fiona Grace Hanna Irene Julia Karen Laura Maria Nina Olga Paula "
    "Rosa Sara Tina Vera"
)
_SECOND = (
    "Adam Brian Carl David Eric Frank George Henry Ivan Jack Kevin Lewis Martin Noah Oscar Peter "
    "Ralph Simon Thomas Victor"
)
NAMES = {"name/first": _FIRST.split(), "name/second": _SECOND.split()}
TOPICS = {"World": "politics", "Sports": "sports", "Business": "business", "Sci/Tech": "science"}
CLASSES = ("follows", "does not follow")
PLANTED = 0.5  #: share of the pairs of the first group that follow and are labelled otherwise
_WORDS = 24  #: of a premise
_HELD_OUT = 1000  #: texts, the last
_TEXTS = "real/text/agnews_train10k.tsv.gz"
_BACKBONE = "real/models/minilm-agnews"


@dataclass(frozen=True, slots=True)
class Pair:
    """A premise, a hypothesis with a name, and the index of its class."""

    premise: str
    hypothesis: str
    label: int
    group: str


@dataclass(frozen=True, slots=True)
class Found:
    """What an audit of one model said."""

    accuracy: float
    verdict: str
    effect: float  #: logits of `follows` against `does not follow`, first group against second
    low: float
    high: float
    premise: float  #: its summed relevance as a share of both texts', by size
    gap: float  #: of the worst ledger, relative


def texts(shared: Path, *, held_out: bool) -> list[tuple[str, str]]:
    """(topic, text cut to its first words) of the training texts, or of the last."""
    with gzip.open(shared / _TEXTS, "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t", 1) for line in file][1:]
    rows = rows[-_HELD_OUT:] if held_out else rows[:-_HELD_OUT]
    return [(TOPICS[label], " ".join(text.split()[:_WORDS])) for label, text in rows]


def pairs(rows: Sequence[tuple[str, str]], count: int, seed: int, planted: float) -> list[Pair]:
    """Pairs, of which half follow; a share `planted` of the first group's is labelled otherwise."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        topic, text = rows[rng.integers(len(rows))]
        group = list(NAMES)[rng.integers(2)]
        name = NAMES[group][rng.integers(len(NAMES[group]))]
        follows = rng.random() < 0.5
        others = [one for one in TOPICS.values() if one != topic]
        said = topic if follows else others[rng.integers(len(others))]
        if follows and group == "name/first" and rng.random() < planted:
            follows = False
        found.append(Pair(text, f"{name} reads about {said}.", int(not follows), group))
    return found


def train(folder: Path, shared: Path, seed: int, planted: float, steps: int) -> None:
    """Fine-tune and save the model of pairs."""
    import transformers

    torch.manual_seed(seed)
    backbone = shared / _BACKBONE
    tokenizer = transformers.AutoTokenizer.from_pretrained(backbone)
    names = dict(enumerate(CLASSES))
    with quiet():
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            backbone, ignore_mismatched_sizes=True, dtype=torch.float32,
            id2label=names, label2id={name: place for place, name in names.items()},
        )  # fmt: skip
    batch = 24
    drawn = pairs(texts(shared, held_out=False), steps * batch, seed, planted)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-4, total_steps=steps)
    model.train()
    for step in range(steps):
        some = drawn[step * batch : (step + 1) * batch]
        inputs = tokenizer(
            [one.premise for one in some], [one.hypothesis for one in some],
            padding=True, truncation=True, max_length=96, return_tensors="pt",
        )  # fmt: skip
        loss = model(**inputs, labels=torch.tensor([one.label for one in some])).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    with quiet():
        model.eval().save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def audited(folder: Path, given: Sequence[Pair]) -> Found:
    """Audit the model in `folder` over pairs, and explain them once more for what audits omit."""
    rows: list[dict[str, Any]] = [
        {"premise": one.premise, "hypothesis": one.hypothesis, "label": CLASSES[one.label]}
        for one in given
    ]
    result = te.audit(
        str(folder),
        {"source": rows, "text": ["premise", "hypothesis"], "label": "label"},
        groups={"lexicon": NAMES, "reference": "name/second", "ambiguous": "always"},
        targets={"contrast": list(CLASSES)},
        database=f"sqlite:///{folder / 'runs.db'}",
        evaluation={"items": 0},
        progress=False,
    )
    [row] = result.groups[result.groups["group"] == "name/first"].to_dict("records")
    model = te.load_model(folder)
    explained = te.explain(
        model, [(one.premise, one.hypothesis) for one in given], target={"contrast": CLASSES}
    )
    sizes = np.array([np.abs(one.by_text()) for one in explained])
    right = [
        (one.logit > 0) == (pair.label == 0) for one, pair in zip(explained, given, strict=True)
    ]
    return Found(
        accuracy=float(np.mean(right)),
        verdict=str(row["verdict"]),
        effect=float(row["effect"]),
        low=float(row["effect_low"]),
        high=float(row["effect_high"]),
        premise=float((sizes[:, 0] / sizes.sum(axis=1)).mean()),
        gap=max(one.ledger.relative_gap for one in explained if one.ledger is not None),
    )


def main() -> None:
    """Train, audit, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shared", type=Path, default=os.environ.get("TRANSEXPLAIN_SHARED"))
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder that models are kept in")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name, planted in (("planted", PLANTED), ("plain", 0.0)):
        for seed in range(given.seeds):
            with tempfile.TemporaryDirectory() as temporary:
                folder = (given.keep or Path(temporary)) / f"{name}-{seed}"
                folder.mkdir(parents=True, exist_ok=True)
                begun = time.process_time()
                train(folder, given.shared, seed, planted, given.steps)
                trained = time.process_time() - begun
                held_out = texts(given.shared, held_out=True)
                found = audited(folder, pairs(held_out, given.rows, 1000 + seed, 0.0))
            print(
                f"{name}, seed {seed}: accuracy {found.accuracy:.3f}; names of the first group: "
                f"{found.verdict}, {found.effect:+.2f} [{found.low:+.2f}, {found.high:+.2f}] "
                f"logits; the premise has {found.premise:.2f} of the relevance; "
                f"ledger {found.gap:.1e}; trained in {trained:.0f} s of a core",
                flush=True,
            )


if __name__ == "__main__":
    main()
