"""The verb that explains one text, picture or graph, by one method or by all: explain."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import transexplain as te
from orchestrator.cli import options as opt
from orchestrator.cli.every_method import compared, plain_record, print_all, write
from orchestrator.spec.audit_spec import (
    JoinOption,
    LongTextOption,
    StrideOption,
    TargetsOption,
    WindowOption,
    overrides_of,
)
from orchestrator.spec.model_section import require_local_model
from orchestrator.spec.spec_document import parameters
from transexplain.errors import ConfigurationError
from transexplain.methods import METHODS
from transexplain.types.plans import AT_POSITIONS
from transexplain.types.scores import MethodSpec

if TYPE_CHECKING:
    from transexplain.models.language_model import LanguageModel
    from transexplain.models.loaded_model import LoadedModel
    from transexplain.types.items import Attribution
    from transexplain.types.prompts import AnswerAttribution


Form = Literal["terminal", "json", "html", "png", "svg"]
Palette = Annotated[
    str, typer.Option("--palette", help="blue-red (colour-blind safe) or green-red")
]
Second = Annotated[
    str | None, typer.Option("--second", help="the second text, of a model that reads pairs")
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
Value = Annotated[
    Literal["logit", "log-probability"],
    typer.Option("--value", help="language models: what of a token is explained"),
]


def explain(  # noqa: PLR0913 - the options of a command line
    item: Given,
    *,
    model: Annotated[str, typer.Option("--model", "-m", help="as in `run`")],
    target: TargetsOption = None,
    method: Annotated[str, typer.Option("--method", help="explanation method, or `all`")] = "lrp",
    at: At = None,
    param: opt.Params = None,
    long_text: LongTextOption = None,
    window: WindowOption = None,
    stride: StrideOption = None,
    join: JoinOption = None,
    second: Second = None,
    per: Per = "token",
    value: Value = "logit",
    output: Output = None,
    palette: Palette = "blue-red",
    alpha: Alpha = 0.5,
    solid: Solid = False,
    device: Annotated[str, typer.Option("--device", help="torch device, or spread")] = "cpu",
    json_: opt.AsJson = False,
) -> None:
    """Explain one text, picture or graph, or what a language model goes on with."""
    form, given = _checked(method, output, as_json=json_), parameters(param)
    require_local_model(model)
    long = overrides_of(long_text=long_text, window=window, stride=stride, join=join)
    spec = MethodSpec(name=method, params={**given, **({"at": at} if at else {})})
    if (language := _language_model(model, device)) is not None:
        _refuse_classifiers_options(method, second, long)
        prompt, wanted = _stdin_or(item), (spec, target or ["next"])
        answers = te.explain_answers(language, prompt, *wanted, per=per, value=value)
        return _show(item, answers, form, output, palette=palette, blend={})
    content = _pair(_content(loaded := te.load_model(model, device=device), item), second)
    if method == "all":
        return _compare(loaded, content, target, given, form, output, palette)
    found = te.explain(loaded, content, spec, target or ["predicted"], **long)
    if form == "terminal":
        _print_answer(loaded, content, found, long)
    blend = {"alpha": alpha, "solid": solid}
    return _show(content, found, form, output, palette=palette, blend=blend)


def _language_model(source: str, device: str) -> "LanguageModel | None":
    """The language model at `source`; None: there is a model of another kind, or none."""
    from transexplain.models.load_language import language_kind

    return te.load_language_model(source, device=device) if language_kind(source) else None


def _refuse_classifiers_options(method: str, second: str | None, long: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for what a language model has no use for."""
    if method == "all" or second is not None or long:
        raise ConfigurationError(
            "--method all, --second and the options of long texts are for classifiers; this is a "
            "language model"
        )


def _stdin_or(item: str) -> str:
    return typer.get_text_stream("stdin").read() if item == "-" else item


def _pair(first: Any, second: str | None) -> Any:
    from transexplain.types.pairs import joined

    if second is None:
        return first
    if not isinstance(first, str):
        raise ConfigurationError("--second is for models of texts")
    return joined(first, second)


def _checked(method: str, output: Path | None, *, as_json: bool) -> Form:
    """The form to write; ConfigurationError for what is wrong, before torch is loaded."""
    form = _form(output, as_json=as_json)
    if method != "all":
        METHODS[method]
    return form


def _compare(
    model: "LoadedModel",
    content: Any,
    targets: list[str] | None,
    given: dict[str, Any],
    form: str,
    output: Path | None,
    palette: str,
) -> None:

    found = compared(model, content, targets, given)
    if form == "terminal":
        print_all(found, palette)
    else:
        _emit(write(found, content, output, palette), output)


def _show(
    content: Any,
    found: "list[Attribution]",
    form: Form,
    output: Path | None,
    *,
    palette: str,
    blend: Mapping[str, Any],
) -> None:
    if form == "json":
        _emit(
            json.dumps([plain_record(one) for one in found], indent=2, ensure_ascii=False), output
        )
    elif form == "html":
        from transexplain.reports.coloured_text import page

        _emit(page(found, palette=palette), output)
    elif form == "png":
        _draw(content, found, output, blend)
    elif form == "svg":
        _draw_graphs(found, output, palette)
    else:
        _print(content, found, palette, blend)


def _form(output: Path | None, *, as_json: bool) -> Form:
    if output is None:
        return "json" if as_json else "terminal"
    forms: dict[str, Form] = {".json": "json", ".html": "html", ".png": "png", ".svg": "svg"}
    if output.suffix not in forms:
        raise ConfigurationError(f"--output {output} must end in .html, .json, .png or .svg")
    return forms[output.suffix]


def _content(model: "LoadedModel", item: str) -> Any:
    from transexplain.data.graph_files import read_graph_file
    from transexplain.data.image_files import SUFFIXES
    from transexplain.data.picture_places import is_packed, picture_at

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
    reads = "graphs (.npz)" if model.modality == "nodes" else "pictures"
    packed = model.modality == "image" and is_packed(item)
    if not packed and not _is_file(item):
        raise ConfigurationError(
            f"{item[:80]!r} is no file, and this model reads {reads}: give the path of one"
        )
    if model.modality == "nodes":
        return dict(read_graph_file(Path(item)).content)
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


def _emit(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"cannot write {output}: {error.strerror}") from error
    typer.echo(f"wrote {output}")


def _draw(
    content: Any, found: "list[Attribution]", output: Path | None, blend: Mapping[str, Any]
) -> None:
    from transexplain.render import overlay
    from transexplain.reports.heatmap import READABLE, resized

    if output is None or isinstance(content, str | Mapping):
        kinds = ".html or .json for a text" if isinstance(content, str) else ".svg for a graph"
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
        _emit(graph(one, palette=palette), path)


_CLASSES = 5  #: that are named with their probability


def _print_answer(
    model: "LoadedModel", content: Any, found: "list[Attribution]", options: Mapping[str, Any]
) -> None:
    """The likeliest classes, of a model that answers an item."""
    import numpy as np
    from rich.console import Console
    from rich.text import Text

    if not found:
        typer.echo("nothing is predicted; --target names a label or a span")
    if model.ref.head in AT_POSITIONS:
        return
    classes: list[Attribution] = te.explain(model, content, "random", "all", **options)
    alone = 1 / (1 + np.exp(-classes[0].logit))
    shares = np.array([one.probabilities.get(one.class_name, alone) for one in classes])
    order = np.argsort(-shares, kind="stable")[:_CLASSES]
    named = ", ".join(f"{classes[index].class_name} {shares[index]:.1%}" for index in order)
    more = f" and {len(classes) - _CLASSES:,} more classes" if len(classes) > _CLASSES else ""
    Console(highlight=False).print(Text(named + more, style="bold"))


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
    if isinstance(content, str | Mapping) or console.color_system is not None:
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
