"""A small causal model that says what most of its documents are about, and prompts for it.

`python -m benchmarks.topic_prompts FOLDER` trains it on the AG News texts of the shared folder: a
prompt is six news texts and a question, its answer the topic that most of them have. So it is
known which documents an answer can depend on.
"""

import argparse
import gzip
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

TOPICS = ("World", "Sports", "Business", "Science")
DOCUMENTS = 6  #: of a prompt
_WORDS = 12  #: of a document
_TEXTS = "text/agnews_train10k.tsv.gz"
_HELD_OUT = 1000  #: texts, the last, for prompts that are explained
_NAMES = {"World": "World", "Sports": "Sports", "Business": "Business", "Sci/Tech": "Science"}
QUESTION = "\nMost of these are about"


@dataclass(frozen=True, slots=True)
class Asked:
    """Six texts, which of them have the topic of the answer, and the answer."""

    documents: tuple[str, ...]
    right: tuple[bool, ...]
    answer: str

    @property
    def parts(self) -> dict[str, str]:
        """The prompt's parts by name."""
        named = {f"document {k}": f"{text}\n" for k, text in enumerate(self.documents)}
        return {**named, "question": QUESTION}


def texts_by_topic(shared: Path, *, held_out: bool) -> dict[str, list[str]]:
    """The texts of each topic, cut to their first words."""
    with gzip.open(shared / "real" / _TEXTS, "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t", 1) for line in file][1:]
    rows = rows[-_HELD_OUT:] if held_out else rows[:-_HELD_OUT]
    found: dict[str, list[str]] = {topic: [] for topic in TOPICS}
    for label, text in rows:
        found[_NAMES[label]].append(" ".join(text.split()[:_WORDS]))
    return found


def prompts(texts: dict[str, list[str]], seed: int, *, easy: float = 0.0) -> Iterator[Asked]:
    """Prompts without end: three texts of one topic, and one of each of the others.

    A share of `easy` ones has one text alone, to learn from what the topics are.
    """
    rng = np.random.default_rng(seed)
    while True:
        topic = TOPICS[rng.integers(len(TOPICS))]
        others = [other for other in TOPICS if other != topic]
        drawn = [(topic, True)] * 3 + [(other, False) for other in others]
        drawn = drawn[:1] if rng.random() < easy else drawn
        rows = [drawn[k] for k in rng.permutation(len(drawn))]
        yield Asked(
            tuple(texts[name][rng.integers(len(texts[name]))] for name, _ in rows),
            tuple(right for _, right in rows),
            f" {topic}",
        )


def tokenizer_of(texts: Sequence[str], size: int = 3000) -> Any:
    """A byte-level tokenizer whose topics are single tokens."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<pad>", "<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    asked = [f"{QUESTION} {topic}" for topic in TOPICS] * len(texts)
    found.train_from_iterator([*texts, *asked], trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=found,
        pad_token="<pad>",
        eos_token="<end>",
        model_input_names=["input_ids", "attention_mask"],
    )


def train(folder: Path, shared: Path, steps: int, *, batch: int = 32) -> float:
    """Train and save the model; returns its accuracy on 400 held-out prompts."""
    import transformers

    torch.manual_seed(0)
    texts = texts_by_topic(shared, held_out=False)
    tokenizer = tokenizer_of([text for some in texts.values() for text in some])
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_positions=512, n_embd=96, n_layer=4, n_head=4,
        bos_token_id=1, eos_token_id=1, pad_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps)
    easy, hard = prompts(texts, seed=0, easy=1.0), prompts(texts, seed=0)
    for step in range(steps):
        some = [next(easy if step % 2 or step < steps // 4 else hard) for _ in range(batch)]
        inputs = _batch(tokenizer, some)
        logits = model(**inputs).logits
        ends = inputs["attention_mask"].sum(dim=1) - 1
        ids = inputs["input_ids"]
        rows = torch.arange(len(some))
        answers = torch.nn.functional.cross_entropy(logits[rows, ends - 1], ids[rows, ends])
        words = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0
        )
        loss = answers + 0.05 * words
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 50 in (0, 1):
            print(f"step {step}: answers {answers:.3f}, words {words:.3f}", flush=True)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return accuracy(model, tokenizer, texts_by_topic(shared, held_out=True))


def _batch(tokenizer: Any, some: Sequence[Asked]) -> Any:
    written = ["".join(one.parts.values()) + one.answer for one in some]
    return tokenizer(written, padding=True, return_tensors="pt")


@torch.no_grad()
def accuracy(model: Any, tokenizer: Any, texts: dict[str, list[str]], count: int = 400) -> float:
    """The share of prompts whose answer is the likeliest token."""
    source, right = prompts(texts, seed=1), 0
    for _ in range(0, count, 20):
        inputs = _batch(tokenizer, [next(source) for _ in range(20)])
        ends = inputs["attention_mask"].sum(dim=1) - 1
        logits = model(**inputs).logits[torch.arange(20), ends - 1]
        right += int((logits.argmax(-1) == inputs["input_ids"][torch.arange(20), ends]).sum())
    return right / count


def main() -> None:
    """Train the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shared", type=Path, default=os.environ.get("TRANSEXPLAIN_SHARED"))
    parser.add_argument("--steps", type=int, default=600)
    given = parser.parse_args()
    print(f"accuracy {train(given.folder, Path(given.shared), given.steps):.3f}")


if __name__ == "__main__":
    main()
