"""Items that are two texts: a premise and a hypothesis, a prompt and the answer to it.

Both stand in one string, so that a position, a mention or a swapped word has one place in its item.
`second_at` beside the string is the character that the second text begins with; None: the string
is a single text. One character stands between the two. It is never looked for.
"""

from collections.abc import Iterable

from transexplain.errors import ItemError

BETWEEN = "\x1e"  #: white space to Python, to lexicons and to whatever cuts texts into words
Edit = tuple[int, int, str]  #: characters of a text, from and to, and what takes their place


def joined(first: str, second: str) -> tuple[str, int]:
    """Two texts as one string, and where the second begins."""
    return f"{first}{BETWEEN}{second}", len(first) + 1


def check_pair(texts: Iterable[str]) -> None:
    """Raise ItemError empty-text where one of two texts is blank."""
    for name, text in zip(("first", "second"), texts, strict=True):
        if not text.strip():
            raise ItemError("empty-text", f"the {name} text of the pair is empty or blank")


def texts_of(text: str | None, second_at: int | None) -> tuple[str, ...]:
    """The single text, or the two of a pair; none of what has no text."""
    if not text:
        return ()
    return (text,) if second_at is None else (text[: max(0, second_at - 1)], text[second_at:])


def in_a_line(text: str, second_at: int | None) -> str:
    """A text, or the beginning of one, on a page: a bar between the texts of a pair."""
    return " | ".join(filter(None, texts_of(text, second_at)))


def edited(text: str, second_at: int | None, edits: Iterable[Edit]) -> tuple[str, int | None]:
    """The text after edits, each in one of its texts, and where the second text begins then.

    An edit that begins within the one before it is left out.
    """
    parts, cursor, moved = [], 0, 0
    for start, end, new in sorted(edits):
        if start < cursor:
            continue
        parts += [text[cursor:start], new]
        cursor = end
        if second_at is not None and end < second_at:
            moved += len(new) - (end - start)
    whole = "".join([*parts, text[cursor:]])
    return whole, None if second_at is None else second_at + moved
