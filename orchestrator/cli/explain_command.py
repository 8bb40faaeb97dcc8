"""The verb that explains one text, picture or graph, by one method or by all: explain.

What it found is shown in a terminal, as JSON, on a page, or drawn over a picture.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

import transexplain as te
from orchestrator.cli import options as opt
from orchestrator.spec.audit_spec import (
    JoinOption,
    LongTextOption,
    StrideOption,
    TargetsOption,
    WindowOption,
    overrides_of,
)
from orchestrator.spec.data_section import require_local_model
from orchestrator.spec.spec_document import parameters
from transexplain.errors import ConfigurationError
from transexplain.methods import METHODS
from transexplain.types.items import SimilarityAttribution
from transexplain.types.plans import AT_POSITIONS
from transexplain.types.prompts import AnswerAttribution
from transexplain.types.scores import MethodSpec

if TYPE_CHECKING:
    from transexplain.models.loaded_model import LoadedModel
    from transexplain.types.items import Attribution, Compared, Ledger


Form = Literal["terminal", "json", "html", "png", "svg"]
Palette = Annotated[
    str, typer.Option("--palette", help="blue-red (colour-blind safe) or green-red")
]
Second = Annotated[
    str | None, typer.Option("--second", help="the second text, of a model that reads pairs")
]
CaptionOption = Annotated[
    str | None, typer.Option("--text", help="the text, of a model that compares it with a picture")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="write .html, .json, .png or .svg instead")
]
Alpha = Annotated[
    float,
    typer.Option(
        "--alpha", min=0, max=1, help="share of the picture under a heatmap; 1: the plain picture"
    ),
]
Solid = Annotated[
    bool, typer.Option("--solid", help="colours cover the picture where there is no relevance too")
]


Given = Annotated[
    str, typer.Argument(help="a text, or the path of a picture or graph (.npz); `-`: stdin")
]
At = Annotated[
    str | None,
    typer.Option("--at", help="encoder, words (text), pixels (image) or nodes (graph)"),
]
Per = Annotated[
    Literal["token", "answer"],
    typer.Option("--per", help="language models: each token of the answer, or their sum"),
]
Thresholds = Annotated[
    list[str] | None,
    typer.Option(
        "--threshold",
        help="several labels: the probability from which one is predicted, 0.3 or LABEL=0.3; "
        "may be repeated",
    ),
]
ModelPlace = Annotated[
    str, typer.Option("--model", "-m", help="directory, hub id, or timm:NAME?checkpoint=FILE")
]
Value = Annotated[
    Literal["logit", "log-probability"],
    typer.Option("--value", help="language models: what of a token is explained"),
]


def explain(  # noqa: PLR0913 - the options of a command line
    item: Given,
    *,
    model: ModelPlace,
    target: TargetsOption = None,
    method: Annotated[str, typer.Option("--method", help="explanation method, or `all`")] = "lrp",
    at: At = None,
    param: opt.Params = None,
    long_text: LongTextOption = None,
    window: WindowOption = None,
    stride: StrideOption = None,
    join: JoinOption = None,
    second: Second = None,
    text: CaptionOption = None,
    per: Per = "token",
    value: Value = "logit",
    threshold: Thresholds = None,
    output: Output = None,
    palette: Palette = "blue-red",
    alpha: Alpha = 0.5,
    solid: Solid = False,
    device: opt.LoadedTo = "cpu",
    json_: opt.AsJson = False,
) -> None:
    """Explain one text, picture, graph or pair, or what a language model goes on with."""
    form, params = form_of(output, as_json=json_), parameters(param)
    if method != "all":
        METHODS[method]  # what is not there is refused before torch is loaded
    require_local_model(model)
    long = overrides_of(long_text=long_text, window=window, stride=stride, join=join)
    long |= _floors(threshold, method)
    spec = MethodSpec(name=method, params={**params, **({"at": at} if at else {})})
    blend = {"alpha": alpha, "solid": solid}
    shown = partial(show, form=form, output=output, palette=palette, blend=blend)
    from transexplain.models.load import KINDS

    towers = text is not None or KINDS.load("towers")(model)
    if towers or KINDS.load("language")(model):
        if method == "all" or second is not None or long:
            raise ConfigurationError(
                "--method all, --second, --threshold and the options of long texts are for "
                "classifiers; this is none"
            )
        if towers:
            return shown(*_compared_by_towers(item, text, model, device, spec, target, form))
        language = te.load_language_model(model, device=device)
        prompt, targets = _stdin_or(item), target or ["next"]
        answers = te.explain_answers(language, prompt, spec, targets, per=per, value=value)
        return shown(item, answers)
    content = _pair(_content(loaded := te.load_model(model, device=device), item), second)
    if method == "all":
        return show_all(compared(loaded, content, target, params), content, form, output, palette)
    attributions = te.explain(loaded, [content], spec, target or ["predicted"], **long)
    if form == "terminal":
        _print_answer(loaded, content, attributions, long)
    return shown(content, attributions)


def _compared_by_towers(
    item: str,
    text: str | None,
    source: str,
    device: str,
    spec: MethodSpec,
    target: list[str] | None,
    form: Form,
) -> tuple[Any, list[Any]]:
    """The picture `item`, and why a model of two towers finds a text and it alike."""
    if text is None or len(target or [""]) > 1:
        raise ConfigurationError(
            f"{source} compares a picture with a text: give both, explain PICTURE --text TEXT, and "
            "one --target, similarity or cosine"
        )
    model = te.load_two_towers(source, device=device)
    content = _picture(item)
    single_target: Any = (target or ["similarity"])[0]
    (pair,) = te.explain_similarity(model, (content, text), spec, single_target)
    if form in ("json", "html"):
        return content, [pair]
    if form == "terminal":
        typer.echo(f"similarity {pair.similarity:+.4g}, cosine {pair.cosine:+.4g}")
    return content, [pair.picture] if form == "png" else [pair.picture, pair.text]


def _floors(options: list[str] | None, method: str) -> dict[str, Any]:
    """`thresholds`, where they are given: a number for all labels, or a number by label.

    Raises ConfigurationError for anything else.
    """
    if options and method == "all":
        raise ConfigurationError("--threshold decides what is predicted; give one --method")
    floors: dict[str, float] = {}
    for option in options or ():
        name, _, number = option.rpartition("=")
        try:
            floors[name] = float(number)
        except ValueError:
            raise ConfigurationError(
                f"--threshold {option!r} is neither a probability, 0.3, nor LABEL=0.3"
            ) from None
    if "" in floors and len(floors) > 1:
        raise ConfigurationError("--threshold is one probability for all labels, or LABEL=0.3 each")
    return {"thresholds": floors.get("", floors)} if floors else {}


def _stdin_or(item: str) -> str:
    return typer.get_text_stream("stdin").read() if item == "-" else item


def _pair(first: Any, second: str | None) -> Any:
    if second is None:
        return first
    if not isinstance(first, str):
        raise ConfigurationError("--second is for models of texts")
    return first, second


def _content(model: "LoadedModel", item: str) -> Any:
    from transexplain.data import ITEM_FILES
    from transexplain.data.image_files import SUFFIXES

    if model.modality == "text":
        if item != "-" and _is_file(item):
            remedy = f"To explain its text: transexplain explain - < {item}"
            if Path(item).suffix.lower() in SUFFIXES:
                remedy = "This model reads texts, not pictures"
            opt.warn(f"{item!r} is a file, and its name was explained as a text. {remedy}")
        elif " " not in item and (
            item.startswith(("./", "../", "/", "~")) or Path(item).suffix.lower() in SUFFIXES
        ):
            opt.warn(f"there is no file {item!r}, and the name was explained as a text")
        return _stdin_or(item)
    if model.modality == "image":
        return _picture(item)
    if not _is_file(item):
        raise _no_file(item, "graphs (.npz)")
    return dict(ITEM_FILES.load("nodes")(Path(item)).content)


def _no_file(item: str, reads: str) -> ConfigurationError:
    return ConfigurationError(
        f"{item[:80]!r} is no file, and this model reads {reads}: give the path of one"
    )


def _picture(item: str) -> Any:
    """The picture at a path; ConfigurationError where it names none or many."""
    from transexplain.data.picture_places import is_packed, picture_at

    if not is_packed(item) and not _is_file(item):
        raise _no_file(item, "pictures")
    if Path(item).suffix.lower() in (".tar", ".parquet"):
        raise ConfigurationError(
            f"{item} holds many pictures: write {item}#MEMBER of a tar, or {item}#COLUMN[ROW] of a "
            "Parquet file; `run --data` explains all of them"
        )
    return picture_at(item)


def _is_file(item: str) -> bool:
    try:
        return Path(item).is_file()
    except (OSError, ValueError):  # too long for a name, or with characters that no name has
        return False


_CLASSES = 5  #: that are named with their probability


def _print_answer(
    model: "LoadedModel",
    content: Any,
    attributions: "list[Attribution]",
    options: Mapping[str, Any],
) -> None:
    """Print the likeliest classes, of a model that answers an item."""
    import numpy as np
    from rich.console import Console
    from rich.text import Text

    if not attributions:
        typer.echo("nothing is predicted; --target names a label or a span")
    if model.ref.head in AT_POSITIONS:
        return
    classes: list[Attribution] = te.explain(model, [content], "random", "all", **options)
    alone = 1 / (1 + np.exp(-classes[0].logit))
    shares = np.array([entry.probabilities.get(entry.class_name, alone) for entry in classes])
    order = np.argsort(-shares, kind="stable")[:_CLASSES]
    named = ", ".join(f"{classes[index].class_name} {shares[index]:.1%}" for index in order)
    more = f" and {len(classes) - _CLASSES:,} more classes" if len(classes) > _CLASSES else ""
    Console(highlight=False).print(Text(named + more, style="bold"))


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
