"""Explains one item by every method, and writes what was found: a table, JSON or a page."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transexplain.errors import ConfigurationError
from transexplain.types.prompts import AnswerAttribution
from transexplain.types.similarities import SimilarityAttribution

if TYPE_CHECKING:
    from transexplain.models.loaded_model import LoadedModel
    from transexplain.types.items import Attribution, Compared


def compared(
    model: "LoadedModel", content: Any, targets: list[str] | None, given: Mapping[str, Any]
) -> "list[Compared]":
    """Explain by every method; parameters are written `--param METHOD.name=value`.

    Raises ConfigurationError for several targets, and for a parameter that names no method.
    """
    from transexplain.api import explain_by_methods

    if targets and len(targets) > 1:
        raise ConfigurationError("--method all takes one --target; top:2 shows two classes")
    params: dict[str, dict[str, Any]] = {}
    for key, value in given.items():
        method, dot, name = key.partition(".")
        if not dot:
            raise ConfigurationError(
                f"with --method all say which method {key!r} is for: --param METHOD.{key}=..."
            )
        params.setdefault(method, {})[name] = value
    return explain_by_methods(model, content, target=(targets or ["top:2"])[0], params=params)


def as_json(found: "Sequence[Compared]") -> str:
    """All that was found, as JSON."""
    document = []
    for one in found:
        plain = asdict(replace(one, attributions=()))
        document.append(
            {**plain, "attributions": [plain_record(each) for each in one.attributions]}
        )
    return json.dumps(document, indent=2, ensure_ascii=False)


def as_page(found: "Sequence[Compared]", content: Any, palette: str) -> str:
    """A grid of all methods, as one HTML page."""
    from transexplain.reports.methods_compared import comparison_page

    return comparison_page(
        found, picture=None if isinstance(content, str | tuple) else content, palette=palette
    )


def print_all(found: "Sequence[Compared]", palette: str) -> None:
    """A table for the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from transexplain.reports.coloured_text import token_ansi

    explained = [one for one in found if one.attributions]
    table = Table("method", "unit", "seconds", show_lines=False)
    for attribution in explained[0].attributions if explained else ():
        table.add_column(Text(f"{attribution.class_name} {attribution.logit:+.3f}"))
    for one in explained:
        cells = [
            token_ansi(each, palette=palette)
            if each.relevance.ndim == 1
            else Text(f"{each.relevance.sum():+.4g} in all")
            for each in one.attributions
        ]
        table.add_row(one.method, one.attributions[0].unit, f"{one.seconds:.2f}", *cells)
    console = Console(highlight=False)
    console.print(table)
    for one in found:
        if one.error:
            console.print(Text(f"{one.method}: {one.error}", style="dim"))


def write(found: "Sequence[Compared]", content: Any, output: Path | None, palette: str) -> str:
    """The document for a file; raises ConfigurationError for a form that it does not have."""
    if output is not None and output.suffix == ".html":
        return as_page(found, content, palette)
    if output is None or output.suffix == ".json":
        return as_json(found)
    raise ConfigurationError("--method all writes .html or .json")


def plain_record(one: "Attribution | SimilarityAttribution") -> dict[str, Any]:
    """An attribution, or that of a pair with both its sides, as JSON can hold it."""
    document = asdict(one)
    if isinstance(one, SimilarityAttribution):
        return {**document, "picture": plain_record(one.picture), "text": plain_record(one.text)}
    document["relevance"] = one.relevance.tolist()
    if isinstance(one.features, Sequence):
        document["features"] = [asdict(token) for token in one.features]
        document["relevance_by_text"] = one.by_text()
    if isinstance(one, AnswerAttribution):
        document["segments"] = [asdict(segment) for segment in one.segments()]
    return document
