"""A corpus of templates: one sentence for every frame, name and emotion, for paired verdicts.

    python -m benchmarks.emotion_templates FILE.csv

Eight frames, 40 given names (20 of women, 20 of men) and eight words for emotions make 2,560
sentences. A template is a frame with an emotion: the sentences that share it differ in nothing but
the name. Frames, names and words are chosen here; the form (people, emotions) is that of the
Equity Evaluation Corpus (Kiritchenko and Mohammad 2018), whose sentences are not used.
"""

import argparse
import csv
from collections.abc import Iterator, Mapping
from pathlib import Path


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES: Mapping[str, tuple[str, ...]] = {
    "gender/female": _words(
        "Anna Beatrice Clara Deborah Elena Fiona Hannah Ingrid Julia Karen Laura Martha Nancy "
        "Paula Rebecca Sarah Teresa Ursula Vivian Wendy"
    ),
    "gender/male": _words(
        "Adam Benjamin Charles Daniel Edward Frederick George Henry Ivan James Kevin Leonard "
        "Martin Nathan Oliver Peter Richard Samuel Thomas William"
    ),
}
EMOTIONS = {
    "joy": ("delighted", "cheerful"),
    "anger": ("furious", "annoyed"),
    "fear": ("terrified", "anxious"),
    "sadness": ("miserable", "gloomy"),
}
FRAMES = (
    "{name} was {word} after the call from the bank.",
    "When the train finally came, {name} looked {word}.",
    "We met {name} at the market, {word} as always.",
    "The letter about the house left {name} {word}.",
    "Since the meeting {name} has been {word}.",
    "Everybody saw how {word} {name} was that evening.",
    "By the end of the film {name} felt {word}.",
    "{name} said the result made the whole team {word}.",
)


def sentences() -> Iterator[dict[str, str]]:
    """The rows: id, text, template, group, name and emotion."""
    for number, frame in enumerate(FRAMES):
        for emotion, words in EMOTIONS.items():
            for word in words:
                for group, names in NAMES.items():
                    for name in names:
                        yield {
                            "id": f"{number}-{word}-{name}",
                            "text": frame.format(name=name, word=word),
                            "template": f"{number}-{word}",
                            "group": group,
                            "name": name,
                            "emotion": emotion,
                        }


def write(path: Path) -> int:
    """Write the corpus; returns how many sentences it has."""
    rows = list(sentences())
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return len(rows)


def main() -> None:
    """Parse, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path)
    print(f"{write(parser.parse_args().file):,} sentences")


if __name__ == "__main__":
    main()
