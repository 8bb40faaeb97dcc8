"""Writes the summary as one HTML file and as JSON, and makes the JSON Schemas of all reports."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from transexplain.reports import charts
from transexplain.reports.coloured_text import marks_css, nodes_css
from transexplain.reports.heatmap import colour_bar, data_uri
from transexplain.reports.page import page, script
from transexplain.reports.phrasing import class_phrase, things
from transexplain.reports.report_records import SCHEMA_VERSION, Summary
from transexplain.reports.report_section import Section, StatementKind
from transexplain.reports.sections import SECTIONS
from transexplain.reports.sections.group_answers import hidden_parts

#: records whose limits, ends and counts may be infinite, which JSON writes as null
_UNBOUNDED = ("Measure", "power__Precision")


class _Written(GenerateJsonSchema):
    """Every field of a record is written, also one that has a default."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        return True

    def default_schema(self, schema: Any) -> dict[str, Any]:
        written = super().default_schema(schema)
        return {key: entry for key, entry in written.items() if entry not in (math.inf, -math.inf)}


def schema_of(record: type, name: str, version: int, *, whole: bool = True) -> dict[str, Any]:
    """The schema (draft 2020-12) of `record`, a dataclass with a field `schema_version`.

    Keys that a later version adds are allowed; a document of another version is not valid. A
    record that is a part of a document (`whole` is False) has no version of its own.
    """
    mode: JsonSchemaMode = "serialization"
    schema = TypeAdapter(record).json_schema(mode=mode, schema_generator=_Written)
    for defined, content in schema.get("$defs", {}).items():
        if defined.endswith(_UNBOUNDED):
            text = json.dumps(content).replace('"type": "number"', '"type": ["number", "null"]')
            schema["$defs"][defined] = json.loads(text)
    if not whole:
        return schema
    schema["properties"]["schema_version"] = {"const": version, "type": "integer"}
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "$id": f"urn:transexplain:{name}:{version}",
        **schema,
    }


def render_json(record: Any) -> str:
    """A record as JSON text in ASCII: keys are its fields; a number that is not finite is null."""
    return json.dumps(plain(record), indent=1, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema that every report satisfies."""

    content = schema_of(Summary, "report", SCHEMA_VERSION)
    sections: dict[str, Any] = {}
    for name in SECTIONS:
        if (record := SECTIONS.load(name).record) is not None:
            sections[name] = schema_of(record, name, SCHEMA_VERSION, whole=False)
            # references are to the top of the document
            content["$defs"] |= sections[name].pop("$defs", {})
    content["properties"]["sections"] = {"type": "object", "properties": sections}
    return content


def plain(value: Any) -> Any:
    """A record or a collection of records as JSON holds it; a number that is not finite is None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


#: what somebody has to know first
_FIRST: tuple[StatementKind, ...] = ("problem", "flagged", "clear", "unknown", "good", "fact")


def pieces(summary: Summary) -> Iterator[dict[str, Any]]:
    """The sections that this report has, each by itself: `name`, `html`, `document`.

    `html` is escaped as in the whole page, for one with the same styles; `document` is JSON.
    """
    names = _names(summary, _shown(summary))
    for name in SECTIONS:
        section: Section = SECTIONS.load(name)
        if section.present(summary):
            fields = {field: plain(getattr(summary, field)) for field in section.of_summary}
            record = plain(summary.sections.get(name))
            yield {
                "name": name,
                "html": page(section.template, **names),
                "document": fields if record is None else {**fields, name: record},
            }


def _shown(summary: Summary) -> list[Section]:
    sections: list[Section] = [SECTIONS.load(name) for name in SECTIONS]
    return [section for section in sections if section.present(summary)]


def _names(summary: Summary, shown: Sequence[Section]) -> dict[str, Any]:
    """Return what the templates of sections know."""
    drawings = {
        name: drawn for section in shown for name, drawn in section.drawing(summary).items()
    }
    return {
        **drawings,
        "s": summary,
        "audited": summary.audited,
        "counts": summary.counts,
        "bar": data_uri(colour_bar()),
        "noun_of_items": things(summary.audited.modality, 2).removeprefix("2 "),
        "hidden_parts": hidden_parts,
        "class_phrase": lambda target, name: class_phrase(target, name, summary.audited.classes),
        "noun": lambda count: things(summary.audited.modality, count),
    }


def render_html(summary: Summary) -> str:
    """One self-contained HTML page; pictures that can be read are embedded."""
    shown = _shown(summary)
    has_charts = any(view.heatmap is None for view in summary.classes)
    return page(
        "report.html.j2",
        **_names(summary, shown),
        sections=shown,
        links=[link for section in shown if section.is_linked(summary) for link in section.links],
        findings=sorted(summary.headline, key=lambda line: _FIRST.index(line.kind)),
        scripts=(script("page.js"), *(charts.scripts() if has_charts else ())),
        marks_css=marks_css() + nodes_css(),
    )
