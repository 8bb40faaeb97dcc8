"""Markdown from values: cells and tables."""

from collections.abc import Iterable, Sequence


def cell(text: object) -> str:
    """One cell of a table: one line, its bars and angle brackets escaped outside code."""
    pieces = " ".join(str(text).split()).split("`")
    for place in range(0, len(pieces), 2):
        pieces[place] = pieces[place].replace("<", "&lt;").replace("[", "\\[")
    return "`".join(pieces).replace("|", "\\|")


def code(text: object) -> str:
    """`text` as code; nothing for an empty text."""
    return f"`{text}`" if str(text) else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; cells are escaped here, save for what is code."""
    lines = [heads, ["---"] * len(heads), *([cell(one) for one in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
