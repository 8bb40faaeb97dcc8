"""Writes numbers, names and verdicts as sentences and tables show them."""

import html
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from transexplain.analysis.groups.measures import Measure, MeasureName
from transexplain.types.findings import Verdict
from transexplain.types.scores import Approximation

_MINUS = "\N{MINUS SIGN}"
_NAMES_SHOWN = 12
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


_TONES: dict[Verdict, str] = {
    "difference": "flagged",
    "equivalent": "clear",
    "inconclusive": "open",
    "suppressed": "unknown",
    "reference": "unknown",
}


def tone(verdict: Verdict) -> str:
    """The style of a verdict: `flagged`, `clear`, `open` or `unknown`."""
    return _TONES[verdict]


def things(modality: str, count: int) -> str:
    """A count of items, called by what they are: `1 text`, `2,000 pictures`."""
    noun = {"text": "text", "image": "picture", "nodes": "graph"}.get(modality, "item")
    return counted(count, noun)


def counted(count: int, noun: str) -> str:
    """A count with its noun: `1 shard`, `2,000 shards`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def commas(count: int) -> str:
    """A count with commas between its thousands."""
    return f"{count:,}"


def number(value: float) -> str:
    """A number for a sentence: two decimals, three where it is tiny; a true minus sign."""
    digits = 2 if abs(value) >= 0.01 or value == 0.0 else 3
    return f"{value:.{digits}f}".replace("-", _MINUS)


def percent(share: float) -> str:
    """A share as a table shows it: 12.3 %."""
    return f"{100 * share:.1f}\u00a0%"


def power(value: float) -> str:
    """A small number as a person writes it: 4.2 x 10 to the -7, in superscript."""
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}"
    digits, _, exponent = f"{value:.1e}".partition("e")
    raised = str(int(exponent)).translate(_SUPERSCRIPT)
    digits = digits.removesuffix(".0").replace("-", _MINUS)
    return f"{digits}\u00a0\N{MULTIPLICATION SIGN}\u00a010{raised}"


def class_phrase(target: str, class_name: str, classes: Sequence[str]) -> str:
    """The phrase for a class in a sentence; a contrast of two classes as `a over b`."""
    if target.startswith("contrast:"):
        for plus in classes:
            minus = class_name.removeprefix(f"{plus}-")
            if minus != class_name and minus in classes:
                return f"{plus} over {minus}"
    return class_name


def named(names: Sequence[str]) -> str:
    """`a, b and c`, a long list cut off with its count."""
    shown = list(names[:_NAMES_SHOWN])
    if len(names) > len(shown):
        return f"{', '.join(shown)} and {len(names) - len(shown)} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def signed(value: float, digits: int = 3) -> str:
    """A number with its sign, as tables show it: +0.123 or U+2212 0.123."""
    text = f"{abs(value):.{digits}f}"
    if float(text) == 0.0:
        return text
    return f"{'+' if value > 0 else _MINUS}{text}"


def measured(measure: Measure, value: float | None = None) -> str:
    """A measure, or another value of its kind, in its unit: logits, a ratio, or points."""
    value = measure.value if value is None else value
    if math.isinf(value):
        return "\N{INFINITY}" if value > 0 else f"{_MINUS}\N{INFINITY}"
    if measure.name in ("impact ratio", "spread"):
        return f"{value:.2f}"
    return signed(value, 2) if measure.name == "logit" else signed(100 * value, 1)


def sureness(measure: Measure) -> str:
    """The interval that decided, with its level; "": too few texts or items for one."""
    if measure.interval is None:
        return ""
    low, high = (measured(measure, end) for end in measure.interval)
    return f"{level(measure)} {low} to {high}"


def level(measure: Measure) -> str:
    """The level of a measure's interval."""
    return f"{100 * measure.level:.{3 if measure.level < 0.999 else 5}g}\u00a0%"


def limit(measure: Measure) -> str:
    """The limit of a measure, in its unit."""
    if measure.name == "impact ratio":
        return f"{measure.low:g} to {measure.high:.2f}"
    size = measure.high if measure.name in ("logit", "spread") else 100 * measure.high
    return f"{size:g}" if math.isinf(measure.low) else f"\N{PLUS-MINUS SIGN}{size:g}"


_DIGITS = 3  #: significant ones


def decimals(scale: float) -> int:
    """Decimals that show `scale` with three significant digits, at most six."""
    if scale == 0.0 or not math.isfinite(scale):
        return 2
    return min(6, max(0, _DIGITS - 1 - math.floor(math.log10(scale))))


def value(number: float, scale: float | None = None) -> str:
    """A number of the size of `scale` (default: its own); tiny ones as a power of ten."""
    size = abs(number) if scale is None else scale
    if number == 0.0:
        return "0"
    if size < 1e-3 or size >= 1e6:
        return power(number).replace("-", _MINUS)
    return f"{number:,.{decimals(size)}f}".replace("-", _MINUS)


def change(number: float, scale: float) -> str:
    """A difference with its sign, in the decimals of the table it belongs to."""
    if number and (scale < 1e-3 or scale >= 1e6):
        return ("+" if number > 0 else "") + value(number, scale)
    return signed(number, decimals(scale))


def span(interval: tuple[float, float] | None, scale: float | None = None) -> str:
    """`0.81 to 0.86`, or nothing; by default in the decimals of the larger end."""
    if interval is None:
        return ""
    size = max(abs(end) for end in interval) if scale is None else scale
    return f"{value(interval[0], size)} to {value(interval[1], size)}"


def probability(p: float | None) -> str:
    """A p-value as `p = 0.012`; nothing where there is none."""
    if p is None:
        return ""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


#: measure -> its name, and its unit
MEASURES: Mapping[MeasureName, tuple[str, str]] = {
    "logit": ("log-odds", "logits"),
    "probability": ("probability", "points"),
    "changed": ("predictions changed", "points"),
    "spread": ("spread of the effect", "logits"),
    "rate": ("rate", "points"),
    "true positive rate": ("true positive rate", "points"),
    "false positive rate": ("false positive rate", "points"),
    "precision": ("precision", "points"),
    "impact ratio": ("impact ratio", ""),
}


def short(source: str) -> str:
    """A model or dataset without the folders of the machine that it was read on."""
    kind, parted, place = source.partition(":")
    if parted and PurePath(place).is_absolute() and kind.isalpha():
        return f"{kind}:{PurePath(place).name}"
    path = PurePath(source)
    return path.name if path.is_absolute() or source.startswith((".", "~")) else source


#: share of the items that a mixed audit explains by the teacher, too, where one is proposed
_SHARE = 0.05


def nearness(approximation: Approximation) -> str:
    """Return how near the trained explainer came to its teacher, without a full stop."""
    correlation, error = approximation.rank_correlation, approximation.relative_error
    if not approximation.items or correlation is None or error is None:
        return f"how near it comes to {approximation.teacher} was not measured when it was trained"
    items = "1 item" if approximation.items == 1 else f"{approximation.items:,} items"
    return (
        f"rank correlation {number(correlation)} (mean) and relative error {number(error)} "
        f"(median) on {items} held out when it was trained"
    )


def approximation_sentences(approximation: Approximation) -> str:
    """That relevance was predicted, of what, and how near it came; two sentences."""
    return (
        f"Relevance was predicted by an explainer that approximates {approximation.teacher}: "
        f"{nearness(approximation)}. There is no ledger, so whether an explanation adds up to its "
        "logit is not known."
    )


def sampled(approximation: Approximation) -> str:
    """The keys of a specification that would measure the explainer on the audit's own items."""
    return f"explain: {{method: learned, exact: {approximation.teacher}, exact_sample: {_SHARE:g}}}"


def method_of(method: str, approximation: Approximation | None) -> str:
    """A method's name, with what it approximates."""
    return (
        method if approximation is None else f"{method}, which approximates {approximation.teacher}"
    )


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_MARKS = re.compile(r"([\\`*_\[\]|#~])")
_SURROGATES = re.compile("[\ud800-\udfff]")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def spreadsheet_safe(cell: Any) -> Any:
    """A text that a spreadsheet would compute gets an apostrophe before it; numbers stay."""
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def markdown_text(text: str) -> str:
    """`text` as Markdown shows it literally, on one line: no HTML, no marks, no notifications."""
    literal = _MARKS.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))
    return literal.replace("@", "@\N{WORD JOINER}")


def encodable(text: str) -> str:
    """`text` with a replacement character for each lone surrogate: UTF-8 has none; same length."""
    return _SURROGATES.sub(_REPLACEMENT, text)


def xml_text(text: str) -> str:
    """`text` with a replacement character for each one that XML 1.0 forbids, even escaped."""
    return _NOT_XML.sub(_REPLACEMENT, text)
