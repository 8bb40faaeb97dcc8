"""Recognisers of the tests: a module's functions, and a spaCy pipeline of an EntityRuler."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from transexplain.analysis.groups.entity_recogniser import entity_recogniser

os.environ["TRANSEXPLAIN_RECOGNISER_MODULES"] = "entity_recognisers"  # as an operator would

PEOPLE = "entity_recognisers:people"


@entity_recogniser(types=["PERSON", "GPE"], version="1")
def people(text: str) -> Iterator[tuple[int, int, str]]:
    """Words with a capital within a text are people, but those on -land."""
    for found in re.finditer(r"(?<=\s)[A-Z][a-z]+(?: [A-Z][a-z]+)*", text):
        yield found.start(), found.end(), "GPE" if found[0].endswith("land") else "PERSON"


@entity_recogniser(version="2")
def untyped(text: str) -> Iterator[tuple[int, int, str, str]]:
    """Finds what `people` finds, with names of its own, and does not say which types."""
    for start, end, kind in people(text):
        yield start, end, kind, f"the {kind.lower()}"


@entity_recogniser(types=["PERSON"])
def outside(text: str) -> list[tuple[int, int, str]]:
    """A place that no text has."""
    return [(0, len(text) + 1, "PERSON")]


@entity_recogniser(types=["PERSON"])
def broken(text: str) -> list[tuple[int, int, str]]:
    """A function that fails."""
    raise ValueError("no names today")


@entity_recogniser(types=["PERSON", "GPE"], version="1")
def moody(text: str) -> Iterator[tuple[int, int, str]]:
    """Finds what `people` finds, and fails on every text with Poland."""
    if "Poland" in text:
        raise ValueError("not Poland again")
    return people(text)


def unmarked(text: str) -> list[tuple[int, int, str]]:
    """A function that nobody marked."""
    raise AssertionError(text)


def save_ruler(folder: Path, patterns: Iterable[dict[str, Any]], **options: Any) -> Path:
    """A blank English pipeline with an EntityRuler, saved to `folder`."""
    import spacy

    language = spacy.blank("en")
    ruler: Any = language.add_pipe("entity_ruler", config=options)
    ruler.add_patterns(list(patterns))
    language.to_disk(folder)
    return folder
