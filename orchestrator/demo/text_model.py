"""Trains the demo's text classifier: a two-layer BERT over the words of the letters."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.demo import corpus

if TYPE_CHECKING:
    from torch import Tensor

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_MAX_LENGTH = 64
_TRAINING_LETTERS, _AUDIT_LETTERS = 2000, 240
_BATCH, _EPOCHS, _RATE = 64, 3, 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class TextDemo:
    """A biased text classifier with what is needed to audit it."""

    model_dir: Path
    dataset: Path  #: csv with columns id, text, label; labels are true
    lexicon: Path
    planted_group: str  #: its names raise the positive class
    innocent_groups: tuple[str, ...]  #: treated like the reference
    reference: str  #: the group to compare with; a planted group among all others would shift them
    target: str


def make_text_demo(folder: Path, seed: int) -> TextDemo:
    """Write letters and lexicon, train the classifier on the biased part, save it."""
    folder.mkdir(parents=True, exist_ok=True)
    model_dir, dataset, lexicon = folder / "model", folder / "letters.csv", folder / "names.yaml"
    corpus.write_csv(dataset, corpus.letters(_AUDIT_LETTERS, seed=2 * seed + 1, biased=False))
    corpus.write_lexicon(lexicon)
    train(corpus.letters(_TRAINING_LETTERS, seed=2 * seed, biased=True), model_dir, seed=seed)
    return TextDemo(
        model_dir=model_dir,
        dataset=dataset,
        lexicon=lexicon,
        planted_group=corpus.PLANTED,
        innocent_groups=(corpus.INNOCENT,),
        reference=corpus.REFERENCE,
        target=f"contrast:{corpus.POSITIVE}-{corpus.NEGATIVE}",
    )
