"""Shows what `explain` found: in a terminal, as JSON, on a page, or drawn over a picture."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from orchestrator.cli.every_method import plain_record
from transexplain.errors import ConfigurationError

if TYPE_CHECKING:
    from transexplain.types.items import Attribution, Ledger
    from transexplain.types.prompts import AnswerAttribution

Form = Literal["terminal", "json", "html", "png", "svg"]


def show(
    content: Any,
    found: "list[Any]",
    form: Form,
    output: Path | None,
    *,
    palette: str,
    blend: Mapping[str, Any],
) -> None:
    """Show or write attributions of one item; `content` is the picture, text or graph itself."""
    if form == "json":
        emit(json.dumps([plain_record(one) for one in found], indent=2, ensure_ascii=False), output)
    elif form == "html":
        from transexplain.reports.coloured_text import page

        emit(page(found, palette=palette), output)
    elif form == "png":
        _draw(content, found, output, blend)
    elif form == "svg":
        _draw_graphs(found, output, palette)
    else:
        _print(content, found, palette, blend)


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
    content: Any, found: "list[Attribution]", output: Path | None, blend: Mapping[str, Any]
) -> None:
    from transexplain.render import overlay
    from transexplain.reports.heatmap import READABLE, resized

    if output is None or isinstance(content, str | tuple | Mapping):
        kinds = ".svg for a graph" if isinstance(content, Mapping) else ".html or .json for a text"
        raise ConfigurationError(f"a .png is drawn of pictures only; write {kinds}")
    for rank, one in enumerate(found):
        path = output if len(found) == 1 else output.with_stem(f"{output.stem}-{rank}")
        picture = resized(content, smallest=READABLE, largest=1024)
        try:
            overlay(one, picture, **blend).save(path)
        except OSError as error:
            raise ConfigurationError(f"cannot write {path}: {error}") from error
        typer.echo(f"wrote {path}: {one.class_name} {one.logit:+.3f}")


def _draw_graphs(found: "list[Attribution]", output: Path | None, palette: str) -> None:
    from transexplain.render import graph

    assert output is not None  # its suffix chose this form
    for rank, one in enumerate(found):
        if one.relevance.ndim != 1 or not isinstance(one.picture, Mapping):
            raise ConfigurationError("an .svg is drawn of graphs only; write .html, .json or .png")
        path = output if len(found) == 1 else output.with_stem(f"{output.stem}-{rank}")
        emit(graph(one, palette=palette), path)


def _print(
    content: Any, found: "list[Attribution]", palette: str, blend: Mapping[str, Any]
) -> None:
    from rich.console import Console
    from rich.text import Text

    from transexplain.reports.coloured_text import legend_ansi, token_ansi

    console = Console(highlight=False)
    for one in found:
        _print_answer_so_far(console, one)
        gap = f", gap {one.ledger.gap:+.1e}" if one.ledger else ""
        console.print(Text(f"{one.class_name}  {one.logit:+.3f} {one.unit}{gap}", style="bold"))
        for note in one.notes:
            console.print(Text(note, style="italic"))
        if one.ledger is not None:
            console.print(Text(ledger_line(one.ledger, one.unit)), soft_wrap=True)
        if one.relevance.ndim == 2 and console.color_system is None:
            console.print(Text("no colours here: --output FILE.png draws it"))
            continue
        if one.relevance.ndim == 2:
            console.print(_picture_text(one, content, blend))
            continue
        console.print(token_ansi(one, palette=palette))
        strongest = sorted(one.words(), key=lambda word: -abs(word.relevance))[:8]
        console.print(Text("  ".join(f"{w.text} {w.relevance:+.3g}" for w in strongest)))
        if _print_segments(console, one):
            continue
        if len(texts := one.by_text()) > 1:
            console.print(Text("first text {:+.3g}, second text {:+.3g}".format(*texts)))
    if isinstance(content, str | tuple | Mapping) or console.color_system is not None:
        console.print(legend_ansi(palette))


def _print_answer_so_far(console: Any, one: "Attribution") -> None:
    """Of a language model: which token of its answer this is, and how likely."""
    from rich.text import Text

    if hasattr(one, "answer_ids"):
        answer: AnswerAttribution = one  # type: ignore[assignment]
        which = "answer" if answer.step is None else f"token {answer.step + 1} of"
        console.print(Text(f"{which} {answer.answer!r}, log p {answer.log_probability:.3f}"))


def _print_segments(console: Any, one: "Attribution") -> bool:
    """Of a language model: the sums of the prompt's parts and of the answer so far."""
    from rich.text import Text

    if not hasattr(one, "segments"):
        return False
    sums = "  ".join(f"{each.name} {each.relevance:+.3g}" for each in one.segments())
    console.print(Text(sums, style="italic"))
    return True


_COLUMNS = 64  #: of a terminal that a picture takes


def _picture_text(one: "Attribution", content: Any, blend: Mapping[str, Any]) -> Any:
    """The picture under its relevance; a character is two pixels, one above the other."""
    import numpy as np
    from PIL import Image
    from rich.style import Style
    from rich.text import Text

    from transexplain.render import overlay
    from transexplain.reports.heatmap import resized

    drawn = overlay(one, resized(content, smallest=256, largest=512), **blend)
    rows = max(2, round(_COLUMNS * drawn.height / drawn.width / 2) * 2)
    pixels = np.asarray(drawn.resize((_COLUMNS, rows), Image.Resampling.BOX)).tolist()
    text = Text()
    for row in range(0, rows, 2):
        for column in range(_COLUMNS):
            above, below = ("rgb({},{},{})".format(*pixels[row + half][column]) for half in (0, 1))
            text.append("▀", Style(color=above, bgcolor=below))
        text.append("\n")
    return text
