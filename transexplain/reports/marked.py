"""Texts of a report's examples: one element a word, drawn on either scale by the page's style.

A word holds its strength on its text's own scale, `--v`, and the text what brings that to the
scale all examples share, `--k`: so a page of a thousand texts holds each of them once.
"""

from collections.abc import Sequence

from markupsafe import Markup

from transexplain.reports.palettes import colour
from transexplain.reports.tokens import DEEPEST, FAINTEST, MAX_OPACITY, escape, pieces
from transexplain.reports.wording import signed
from transexplain.spans import Span, largest


def marked_html(
    text: str, spans: Sequence[Span], *, scale: float, unread_from: int | None = None
) -> Markup:
    """`text` with its words marked, for a page that has `marks_css`; everything is escaped.

    Args:
        text: as the item has it, or its beginning.
        spans: words with their relevance.
        scale: |relevance| that gets the full colour on the shared scale.
        unread_from: character from which the model read nothing; that part is dimmed.
    """
    full = largest(spans)
    stop = len(text) if unread_from is None else min(max(unread_from, 0), len(text))
    shared = f' style="--k:{full / scale:.3g}"' if scale and full else ""
    parts = [f'<span class="tx" dir="auto"{shared}>']
    for start, end, value in pieces(stop, spans):
        shown = escape(text[start:end])
        parts.append(shown if value is None else _word(shown, value, full))
    if stop < len(text):
        parts.append(
            '<span class="tx-unread" title="not read by the model: the text was too long">'
            f"{escape(text[stop:])}</span>"
        )
    # every part is escaped above
    return Markup("".join([*parts, "</span>"]))


def marks_css() -> Markup:
    """Style rules for the words, in the colours of the standard palette."""
    rules = (
        f".tx .{name}{{background:rgba({','.join(map(str, colour(end * DEEPEST)))},"
        f"calc(min(1,var(--v)*var(--k,1))*{MAX_OPACITY}))}}"
        for name, end in (("p", 1.0), ("n", -1.0))
    )
    return Markup("\n".join(rules))


def _word(shown: str, value: float, full: float) -> str:
    strength = abs(value) / full if full else 0.0
    if strength < FAINTEST:
        return f'<span title="{signed(value)}">{shown}</span>'
    name = "p" if value > 0 else "n"
    return f'<span class={name} style=--v:{strength:.2f} title="{signed(value)}">{shown}</span>'
