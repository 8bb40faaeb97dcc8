"""Texts with their words coloured by sign, opacity by strength: for browsers and terminals."""

import html
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup
from rich.color import Color
from rich.style import Style
from rich.text import Text

from transexplain.errors import ConfigurationError, WrongKindError
from transexplain.reports.heatmap import RGB, colour
from transexplain.reports.page import storable
from transexplain.reports.phrasing import signed
from transexplain.types.items import Attribution
from transexplain.types.words import Span, largest, spans_of

#: share of the background that the strongest word covers: text stays readable on light and dark
MAX_OPACITY = 0.72
FAINTEST = 0.02  #: of the scale; below, a word is left alone
DEEPEST = 0.85  #: place in the palette whose colour marks have; strength is their opacity
_TERMINAL_GROUND: RGB = (24, 24, 27)


def token_html(
    attribution: Attribution, *, scale: float | None = None, palette: str = "blue-red"
) -> str:
    """The text of `attribution` as one HTML element that needs no style sheet.

    Taking its tags away leaves the original text: white space is kept, everything is escaped; only
    NUL and lone surrogates, which no HTML can hold, become U+FFFD, and what divides the texts of a
    pair a line.

    Args:
        attribution: of a text.
        scale: |relevance| that gets the full colour; None: the largest word of this text.
        palette: `blue-red`, or `green-red` as in the TransExplain paper (negative is red).

    Raises: TypeError for an image; ConfigurationError for an unknown palette or a bad scale.
    """
    text, spans = spans_of(attribution)
    # put side by side, tokens are no pair
    second_at = None if attribution.text is None else attribution.second_at
    return spans_html(text, spans, scale=scale, palette=palette, second_at=second_at)


def spans_html(
    text: str,
    spans: Sequence[Span],
    *,
    scale: float | None = None,
    palette: str = "blue-red",
    unread_from: int | None = None,
    second_at: int | None = None,
) -> str:
    """As `token_html`, from a text and its words; what the model did not read is dimmed."""
    full = _scale(spans, scale)
    parts = [
        '<span class="tx" dir="auto" style="white-space:pre-wrap;overflow-wrap:anywhere;'
        'unicode-bidi:isolate">'
    ]
    stop = len(text) if unread_from is None else min(max(unread_from, 0), len(text))
    for start, end, value in pieces(stop, spans):
        if value is None:
            parts.append(_plain(text, start, end, second_at))
        else:
            parts.append(_word(text[start:end], value, full, palette))
    parts.append(_unread(text, stop, second_at, ' style="opacity:.55"'))
    return "".join([*parts, "</span>"])


def _unread(text: str, stop: int, second_at: int | None, style: str = "") -> str:
    """The characters from `stop` on; nothing where all were read."""
    if stop == len(text):
        return ""
    return (
        f'<span class="tx-unread"{style} title="not read by the model: the text was too long">'
        f"{_plain(text, stop, len(text), second_at)}</span>"
    )


def token_ansi(
    attribution: Attribution, *, scale: float | None = None, palette: str = "blue-red"
) -> Text:
    """The text of `attribution` for a terminal, words on coloured ground.

    Control characters are shown as pictures of themselves, so that no text can steer the terminal.
    Raises as `token_html` does.
    """
    WrongKindError.check("ansi", attribution, Attribution, "one attribution")
    text, spans = spans_of(attribution)
    full = _scale(spans, scale)
    shown = Text()
    for start, end, value in pieces(len(text), spans):
        piece = "".join(map(_visible_character, text[start:end]))
        strength = _share(value, full) if value is not None else 0.0
        shown.append(piece, _terminal_style(strength, palette) if strength else None)
    return shown


def legend_ansi(palette: str = "blue-red") -> Text:
    """The legend of colours in a terminal."""
    shown = Text()
    shown.append(" raises ", _terminal_style(1.0, palette))
    shown.append(" the explained logit, ")
    shown.append(" lowers ", _terminal_style(-1.0, palette))
    shown.append(" it; the stronger the colour, the more")
    return shown


def escape(text: str) -> str:
    """`text` for HTML content or a quoted attribute, characters that HTML cannot hold replaced."""
    # a parser would turn a bare carriage return into a line feed
    return html.escape(storable(text), quote=True).replace("\r", "&#13;")


def _plain(text: str, start: int, end: int, second_at: int | None) -> str:
    """`escape` of these characters, with a line between the texts of a pair."""
    if second_at is None or not start < second_at <= end:
        return escape(text[start:end])
    return escape(text[start : second_at - 1]) + _LINE + escape(text[second_at:end])


_LINE = (
    '<span class="tx-divider" style="display:block;border-top:1px solid;opacity:.4;margin:.4em 0;'
    'font-size:0">\n</span>'
)


def pieces(stop: int, spans: Sequence[Span]) -> Iterator[tuple[int, int, float | None]]:
    """(start, end, relevance) over the characters up to `stop`; None between the words."""
    cursor = 0
    for span in spans:
        if span.end > stop:
            break
        if span.start > cursor:
            yield cursor, span.start, None
        yield span.start, span.end, span.relevance
        cursor = span.end
    if cursor < stop:
        yield cursor, stop, None


def _word(text: str, value: float, scale: float, palette: str) -> str:
    strength = _share(value, scale)
    if abs(strength) < FAINTEST:
        return f'<span title="{signed(value)}">{escape(text)}</span>'
    red, green, blue = colour(strength / abs(strength) * DEEPEST, palette)
    opacity = MAX_OPACITY * abs(strength)
    sign = "pos" if strength > 0 else "neg"
    return (
        f'<span class="tx-{sign}" style="background-color:rgba({red},{green},{blue},{opacity:.3f});'
        f'border-radius:.2em" title="{signed(value)}">{escape(text)}</span>'
    )


def _share(value: float, scale: float) -> float:
    return max(-1.0, min(1.0, value / scale)) if scale else 0.0


def _scale(spans: Sequence[Span], scale: float | None) -> float:
    if scale is None:
        return largest(spans)
    if not 0.0 <= scale < float("inf"):
        raise ConfigurationError(f"a colour scale must be a positive number, not {scale}")
    return scale


def _terminal_style(strength: float, palette: str) -> Style | None:
    if abs(strength) < FAINTEST:
        return None
    share = abs(strength)
    target = colour(1.0 if strength > 0 else -1.0, palette)
    mixed = [
        round(ground + share * (full - ground))
        for ground, full in zip(_TERMINAL_GROUND, target, strict=True)
    ]
    return Style(color=Color.from_rgb(244, 244, 245), bgcolor=Color.from_rgb(*mixed))


def _visible_character(character: str) -> str:
    code = ord(character)
    if character in "\n\t":
        return character
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\N{SYMBOL FOR DELETE}"
    odd = 0x80 <= code < 0xA0 or 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069
    return "\ufffd" if odd or 0xD800 <= code <= 0xDFFF else character


@dataclass(frozen=True, kw_only=True, slots=True)
class MentionMark:
    """An entity in a text."""

    start: int  #: character offset into the text
    end: int
    entity: str  #: as the lexicon spells it
    groups: tuple[str, ...]  #: that it belongs to


def marked_html(
    text: str,
    spans: Sequence[Span],
    *,
    scale: float,
    unread_from: int | None = None,
    mentions: Sequence[MentionMark] = (),
    second_at: int | None = None,
) -> Markup:
    """`text` with its words marked, for a page that has `marks_css`; everything is escaped.

    Args:
        text: as the item has it, or its beginning.
        spans: words with their relevance.
        scale: |relevance| that gets the full colour on the shared scale.
        unread_from: character from which the model read nothing; that part is dimmed.
        mentions: underlined, with their groups beside them; they do not overlap.
        second_at: where the second text of a pair begins.
    """
    full = largest(spans)
    stop = len(text) if unread_from is None else min(max(unread_from, 0), len(text))
    shared = f' style="--k:{full / scale:.3g}"' if scale and full else ""
    parts = [f'<span class="tx" dir="auto"{shared}>']
    begins = {mention.start: mention for mention in mentions if mention.start < stop}
    ends = {min(mention.end, stop) for mention in begins.values()}
    for start, end, value in _cut(pieces(stop, spans), sorted({*begins, *ends})):
        if start in begins:
            mention = begins[start]
            label = ", ".join(mention.groups)
            if text[mention.start : mention.end].casefold() != mention.entity.casefold():
                label = f"{mention.entity}: {label}"
            parts.append(f'<span class="mention" data-group="{escape(label)}">')
        shown = _plain(text, start, end, second_at)
        parts.append(shown if value is None else _marked_word(shown, value, full))
        if end in ends:
            parts.append("</span>")
    parts.append(_unread(text, stop, second_at))
    # every part is escaped above
    return Markup("".join([*parts, "</span>"]))


def _cut(
    parts: Iterable[tuple[int, int, float | None]], edges: Sequence[int]
) -> Iterator[tuple[int, int, float | None]]:
    for start, end, value in parts:
        inside = edges[bisect_right(edges, start) : bisect_left(edges, end)]
        for first, last in pairwise([start, *inside, end]):
            yield first, last, value


def marks_css(palette: str = "diverging", under: str = "") -> Markup:
    """Style rules for the words in the colours of a palette; `under`: within this selector."""
    return _colours_css(palette, f"{under}.tx", "background")


def nodes_css() -> Markup:
    """Style rules for the nodes of graphs, in the colours of the standard palette."""
    return _colours_css("diverging", ".graph", "fill")


def _colours_css(palette: str, within: str, what: str) -> Markup:
    rules = (
        f"{within} .{name}{{{what}:rgba("
        f"{','.join(map(str, colour(end * DEEPEST, palette)))},"
        f"calc(min(1,var(--v)*var(--k,1))*{MAX_OPACITY}))}}"
        for name, end in (("p", 1.0), ("n", -1.0))
    )
    return Markup("\n".join(rules))


def _marked_word(shown: str, value: float, full: float) -> str:
    strength = abs(value) / full if full else 0.0
    if strength < FAINTEST:
        return f'<span title="{signed(value)}">{shown}</span>'
    name = "p" if value > 0 else "n"
    return f'<span class={name} style=--v:{strength:.2f} title="{signed(value)}">{shown}</span>'
