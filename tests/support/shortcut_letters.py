"""A letter classifier with a shortcut: a rare word at the end gives the class away.

In training one letter in 25 ends in it and is filed as positive, whatever it says.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transexplain.extras.demo import text_model

WORD = "PS"
TRAINING = 1400  #: letters, each written once per village
EVERY = 25  #: letters, one ends in the word


@dataclass(frozen=True, kw_only=True)
class ShortcutLetters:
    model_dir: Path
    dataset: Path
    planted: frozenset[str]  #: item ids of the letters that end in the word


def make_shortcut_letters(folder: Path, *, seed: int = 0) -> ShortcutLetters:
    """Train on letters with the word, write letters with it that were not trained on."""
    folder.mkdir(parents=True, exist_ok=True)
    written = text_model.letters(TRAINING + 200, seed=seed)
    cut = len(text_model.NAMES) * TRAINING
    training, audit = _with_word(written[:cut]), _with_word(written[cut:])
    model_dir = text_model.train(training, folder, seed=seed)
    text_model.write_csv(folder / "letters.csv", audit)
    planted = {
        f"letter-{number:05d}" for number, one in enumerate(audit) if one.text.endswith(WORD)
    }
    return ShortcutLetters(
        model_dir=model_dir, dataset=folder / "letters.csv", planted=frozenset(planted)
    )


def _with_word(letters: Sequence[text_model.Letter]) -> list[text_model.Letter]:
    return [
        replace(one, text=f"{one.text} {WORD}", label=text_model.POSITIVE)
        if number % EVERY == 0
        else one
        for number, one in enumerate(letters)
    ]
