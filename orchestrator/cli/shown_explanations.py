"""Shows what `explain` found: in a terminal, as JSON, on a page, or drawn over a picture."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from transexplain.errors import ConfigurationError
from transexplain.types.items import SimilarityAttribution
from transexplain.types.prompts import AnswerAttribution

if TYPE_CHECKING:
    from transexplain.models.loaded_model import LoadedModel
    from transexplain.types.items import Attribution, Compared, Ledger

Form = Literal["terminal", "json", "html", "png", "svg"]


def compared(
    model: "LoadedModel", content: Any, targets: list[str] | None, options: Mapping[str, Any]
) -> "list[Compared]":
    """Explain by every method; parameters are written `--param METHOD.name=value`.

    Raises ConfigurationError for several targets, and for a parameter that names no method.
    """
    from transexplain.api import explain_by_methods

    if targets and len(targets) > 1:
        raise ConfigurationError("--method all takes one --target; top:2 shows two classes")
    params: dict[str, dict[str, Any]] = {}
    for key, value in options.items():
        method, dot, name = key.partition(".")
        if not dot:
            raise ConfigurationError(
                f"with --method all say which method {key!r} is for: --param METHOD.{key}=..."
            )
        params.setdefault(method, {})[name] = value
    return explain_by_methods(model, content, target=(targets or ["top:2"])[0], params=params)


def show_all(
    comparisons: "Sequence[Compared]", content: Any, form: Form, output: Path | None, palette: str
) -> None:
    """Show or write the attributions of all methods; raises ConfigurationError for pictures."""
    if form == "terminal":
        _print_all(comparisons, palette)
    elif form == "html":
        from transexplain.reports.methods_compared import comparison_page

        picture = None if isinstance(content, str | tuple) else content
        emit(comparison_page(comparisons, picture=picture, palette=palette), output)
    elif form == "json":
        document = [
            asdict(replace(comparison, attributions=()))
            | {"attributions": [plain_record(each) for each in comparison.attributions]}
            for comparison in comparisons
        ]
        emit(json.dumps(document, indent=2, ensure_ascii=False), output)
    else:
        raise ConfigurationError("--method all writes .html or .json")


def _print_all(comparisons: "Sequence[Compared]", palette: str) -> None:
    from transexplain.reports.coloured_text import token_ansi

    explained = [comparison for comparison in comparisons if comparison.attributions]
    table = Table("method", "unit", "seconds", show_lines=False)
    for attribution in explained[0].attributions if explained else ():
        table.add_column(Text(f"{attribution.class_name} {attribution.logit:+.3f}"))
    for comparison in explained:
        cells = [
            token_ansi(each, palette=palette)
            if each.relevance.ndim == 1
            else Text(f"{each.relevance.sum():+.4g} in all")
            for each in comparison.attributions
        ]
        table.add_row(
            comparison.method, comparison.attributions[0].unit, f"{comparison.seconds:.2f}", *cells
        )
    console = Console(highlight=False)
    console.print(table)
    for comparison in comparisons:
        if comparison.error:
            console.print(Text(f"{comparison.method}: {comparison.error}", style="dim"))


def plain_record(attribution: "Attribution | SimilarityAttribution") -> dict[str, Any]:
    """An attribution, or that of a pair with both its sides, as JSON can hold it."""
    document = asdict(attribution)
    if isinstance(attribution, SimilarityAttribution):
        return {
            **document,
            "picture": plain_record(attribution.picture),
            "text": plain_record(attribution.text),
        }
    document["relevance"] = attribution.relevance.tolist()
    if isinstance(attribution.features, Sequence):
        document["features"] = [asdict(token) for token in attribution.features]
        document["relevance_by_text"] = attribution.by_text()
    if isinstance(attribution, AnswerAttribution):
        document["segments"] = [asdict(segment) for segment in attribution.segments()]
    return document


def show(
    content: Any,
    attributions: "list[Any]",
    *,
    form: Form,
    output: Path | None,
    palette: str,
    blend: Mapping[str, Any],
) -> None:
    """Show or write attributions of one item; `content` is the picture, text or graph itself."""
    if form == "json":
        document = [plain_record(attribution) for attribution in attributions]
        emit(json.dumps(document, indent=2, ensure_ascii=False), output)
    elif form == "html":
        from transexplain.reports.attribution_html import page

        emit(page(attributions, palette=palette), output)
    elif form == "png":
        _draw(content, attributions, output, blend)
    elif form == "svg":
        _draw_graphs(attributions, output, palette)
    else:
        _print(content, attributions, palette, blend)


def form_of(output: Path | None, *, as_json: bool) -> Form:
    """The form that the name of the output says; ConfigurationError for another ending."""
    if output is None:
        return "json" if as_json else "terminal"
    forms: dict[str, Form] = {".json": "json", ".html": "html", ".png": "png", ".svg": "svg"}
    if output.suffix not in forms:
        raise ConfigurationError(f"--output {output} must end in .html, .json, .png or .svg")
    return forms[output.suffix]


def emit(text: str, output: Path | None) -> None:
    """Print a text, or write it; ConfigurationError where that fails."""
    if output is None:
        typer.echo(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"cannot write {output}: {error.strerror}") from error
    typer.echo(f"wrote {output}")


def ledger_line(ledger: "Ledger", unit: str) -> str:
    """The entries of a ledger in a line: where the logit went."""
    entries = ("inputs", "special", "embeddings", "biases", "rules")
    parts = "  ".join(f"{name} {getattr(ledger, name):+.4f}" for name in entries)
    return f"ledger in {unit}: {parts}"


def _draw(
    content: Any, attributions: "list[Attribution]", output: Path | None, blend: Mapping[str, Any]
) -> None:
    from transexplain.render import overlay
    from transexplain.reports.heatmap import READABLE, resized

    if output is None or isinstance(content, str | tuple | Mapping):
        kinds = ".svg for a graph" if isinstance(content, Mapping) else ".html or .json for a text"
        raise ConfigurationError(f"a .png is drawn of pictures only; write {kinds}")
    for rank, attribution in enumerate(attributions):
        path = output if len(attributions) == 1 else output.with_stem(f"{output.stem}-{rank}")
        picture = resized(content, smallest=READABLE, largest=1024)
        try:
            overlay(attribution, picture, **blend).save(path)
        except OSError as error:
            raise ConfigurationError(f"cannot write {path}: {error}") from error
        typer.echo(f"wrote {path}: {attribution.class_name} {attribution.logit:+.3f}")


def _draw_graphs(attributions: "list[Attribution]", output: Path | None, palette: str) -> None:
    from transexplain.render import graph

    assert output is not None  # its suffix chose this form
    for rank, attribution in enumerate(attributions):
        if attribution.relevance.ndim != 1 or not isinstance(attribution.picture, Mapping):
            raise ConfigurationError("an .svg is drawn of graphs only; write .html, .json or .png")
        path = output if len(attributions) == 1 else output.with_stem(f"{output.stem}-{rank}")
        emit(graph(attribution, palette=palette), path)


def _print(
    content: Any, attributions: "list[Attribution]", palette: str, blend: Mapping[str, Any]
) -> None:
    from transexplain.reports.coloured_text import legend_ansi

    console = Console(highlight=False)
    for attribution in attributions:
        if isinstance(attribution, AnswerAttribution):
            which = "answer" if attribution.step is None else f"token {attribution.step + 1} of"
            chance = f"log p {attribution.log_probability:.3f}"
            console.print(Text(f"{which} {attribution.answer!r}, {chance}"))
        gap = f", gap {attribution.ledger.gap:+.1e}" if attribution.ledger else ""
        headline = f"{attribution.class_name}  {attribution.logit:+.3f} {attribution.unit}{gap}"
        console.print(Text(headline, style="bold"))
        for note in attribution.notes:
            console.print(Text(note, style="italic"))
        if attribution.ledger is not None:
            console.print(Text(ledger_line(attribution.ledger, attribution.unit)), soft_wrap=True)
        if attribution.relevance.ndim == 1:
            _print_positions(console, attribution, palette)
        elif console.color_system is None:
            console.print(Text("no colours here: --output FILE.png draws it"))
        else:
            console.print(_picture_text(attribution, content, blend))
    if isinstance(content, str | tuple | Mapping) or console.color_system is not None:
        console.print(legend_ansi(palette))


def _print_positions(console: Console, attribution: "Attribution", palette: str) -> None:
    """Print the coloured text, its strongest words, and the sums of its parts."""
    from transexplain.reports.coloured_text import token_ansi

    console.print(token_ansi(attribution, palette=palette))
    strongest = sorted(attribution.words(), key=lambda word: -abs(word.relevance))[:8]
    console.print(Text("  ".join(f"{w.text} {w.relevance:+.3g}" for w in strongest)))
    if isinstance(attribution, AnswerAttribution):  # of the prompt and the answer so far
        parts = "  ".join(f"{each.name} {each.relevance:+.3g}" for each in attribution.segments())
        console.print(Text(parts, style="italic"))
    elif len(texts := attribution.by_text()) > 1:
        console.print(Text("first text {:+.3g}, second text {:+.3g}".format(*texts)))


_COLUMNS = 64  #: of a terminal that a picture takes


def _picture_text(attribution: "Attribution", content: Any, blend: Mapping[str, Any]) -> Any:
    """The picture under its relevance; a character is two pixels, one above the other."""
    import numpy as np
    from PIL import Image

    from transexplain.render import overlay
    from transexplain.reports.heatmap import resized

    drawn = overlay(attribution, resized(content, smallest=256, largest=512), **blend)
    rows = max(2, round(_COLUMNS * drawn.height / drawn.width / 2) * 2)
    pixels = np.asarray(drawn.resize((_COLUMNS, rows), Image.Resampling.BOX)).tolist()
    text = Text()
    for row in range(0, rows, 2):
        for column in range(_COLUMNS):
            above, below = ("rgb({},{},{})".format(*pixels[row + half][column]) for half in (0, 1))
            text.append("▀", Style(color=above, bgcolor=below))
        text.append("\n")
    return text
