"""Items that are two texts: a premise and a hypothesis, a question and an answer.

Both stand in one string, divided by U+001E (record separator). So a position, a mention or a
swapped word has one place in its item, stores and exports keep pairs as they keep texts, and which
text a place belongs to follows from the string.
"""

from typing import Any

from transexplain.errors import ItemError

DIVIDER = "\x1e"  #: white space to Python, to lexicons and to whatever cuts texts into words
_NAMES = ("first", "second")


def joined(first: str, second: str, names: tuple[str, str] = _NAMES) -> str:
    """Two texts as one item; `names` stand for them in messages.

    Raises ItemError empty-text, or malformed-row where one of them holds the divider.
    """
    for name, text in zip(names, (first, second), strict=True):
        if not text.strip():
            raise ItemError("empty-text", f"the {name} text of the pair is empty or blank")
        if DIVIDER in text:
            raise ItemError("malformed-row", f"the {name} text holds U+001E, which divides pairs")
    return f"{first}{DIVIDER}{second}"


def as_one(content: Any) -> Any:
    """A tuple of two texts as one item; anything else as it is. Raises ItemError as `joined`."""
    if isinstance(content, tuple) and [*map(type, content)] == [str, str]:
        return joined(*content)
    return content


def divided(text: str) -> tuple[str, ...]:
    """The texts of an item: one, or the two of a pair.

    Raises ItemError malformed-row where there are more, empty-text where one of two is blank.
    """
    parts = tuple(text.split(DIVIDER))
    if len(parts) > 2:
        raise ItemError("malformed-row", "the text holds U+001E, which divides pairs, twice")
    if len(parts) == 2:
        joined(parts[0], parts[1])
    return parts


def second_from(content: object) -> int | None:
    """The character that the second text of a pair begins with.

    None for what is no pair: a single text, and an item that is no text or was encoded before.
    """
    found = content.find(DIVIDER) if isinstance(content, str) else -1
    return None if found < 0 else found + 1
