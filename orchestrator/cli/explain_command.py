"""The verb that explains one text, picture or graph, by one method or by all: explain."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import transexplain as te
from orchestrator.cli import options as opt
from orchestrator.cli.shown_explanations import Form, compared, form_of, show, show_all
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
from transexplain.types.plans import AT_POSITIONS
from transexplain.types.scores import MethodSpec

if TYPE_CHECKING:
    from transexplain.models.loaded_model import LoadedModel
    from transexplain.types.items import Attribution


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
