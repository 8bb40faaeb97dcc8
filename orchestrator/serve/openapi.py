"""The OpenAPI document of the pages' JSON, from the table of pages."""

import re
from collections.abc import Mapping
from typing import Any

from orchestrator.serve.access import AccessRules
from orchestrator.serve.acting_pages import ACTIONS, EXPLAIN_PATH, OPERATE_PATH
from orchestrator.serve.own_forms import TOKEN
from orchestrator.serve.page_table import PAGES
from transexplain.version import __version__

_TEXT = {"type": "string"}
_ERRORS = {
    "404": "no such run, group, entity, class or item",
    "422": "a value of the query cannot be read",
    "503": "the database is away",
}
_SHOWN = {"404": "no such run", "409": "the run as it is does not allow it"}
_REFUSED = {
    **_SHOWN,
    "403": "the token is old or of another form, or the request began on another site",
    "408": "the form did not come in time",
    "413": "larger than allowed",
    "415": "no form",
}
_LIVE = {
    **_REFUSED,
    "422": "it cannot be explained, or not by this method",
    "429": "too many requests of this client",
    "503": "too many wait, or the model's process ended",
    "504": "it took too long",
}
_OPERATE_FIELDS = {"failed": {"type": "boolean", "description": "retry: failed items, too"}}
_LIVE_FIELDS = {
    "text": {**_TEXT, "description": "for a model of texts"},
    "picture": {**_TEXT, "format": "binary", "description": "for a model of pictures"},
    "method": _TEXT,
    "beside": {**_TEXT, "description": "another method"},
    "target": {**_TEXT, "description": "predicted, class:NAME, top:2, ..."},
}


def document(rules: AccessRules, features: Mapping[str, bool]) -> dict[str, Any]:
    """OpenAPI 3.1: every page with `.json` behind its path, and the forms that are switched on.

    GET shows a form and its token, POST does it.
    """
    reads = "" if any(features.values()) else ", read-only"
    paths = {
        page.path: {"get": _operation(page.name, page.summary, page.path, _ERRORS, page.query)}
        for page in PAGES
    }
    if features.get("operate"):
        about = ("What an action on a run would do.", "Cancel, retry or resume a run.")
        paths[OPERATE_PATH] = _form("operate", OPERATE_PATH, about, _OPERATE_FIELDS, _REFUSED)
    if features.get("live"):
        about = (
            "Methods, targets and limits of a run's model.",
            "Explain a text or picture by a run's model.",
        )
        paths[EXPLAIN_PATH] = _form("explain", EXPLAIN_PATH, about, _LIVE_FIELDS, _LIVE)
    schema: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "TransExplain",
            "version": __version__,
            "description": f"Runs of a store{reads}. A name in a path is percent-encoded; one "
            "that no path can hold is ~ and the hexadecimal digits of its UTF-8 bytes.",
        },
        "paths": {f"{path}.json": operations for path, operations in paths.items()},
    }
    if rules.token is not None:
        schema["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        schema["security"] = [{"token": []}]
    return schema


def _form(
    name: str,
    path: str,
    about: tuple[str, str],
    fields: Mapping[str, Any],
    errors: Mapping[str, str],
) -> dict[str, Any]:
    shows = _operation(f"{name}_form", about[0], path, _SHOWN)
    shows["responses"]["200"] = {
        "description": f"{about[0]} Sets a cookie.",
        "content": _content({"type": "object", "required": [TOKEN]}),
    }
    token = {**_TEXT, "description": "of the form, got with the cookie that is sent along"}
    schema = {"type": "object", "properties": {TOKEN: token, **fields}, "required": [TOKEN]}
    body = {"required": True, "content": {"multipart/form-data": {"schema": schema}}}
    return {
        "get": shows,
        "post": {**_operation(name, about[1], path, errors), "requestBody": body},
    }


def _operation(
    name: str,
    summary: str,
    path: str,
    errors: Mapping[str, str],
    query: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    in_path = [
        {
            "name": part,
            "in": "path",
            "required": True,
            "schema": {**_TEXT, "enum": list(ACTIONS)} if part == "action" else _TEXT,
        }
        for part in re.findall(r"\{(\w+)\}", path)
    ]
    in_query = [
        {
            "name": part,
            "in": "query",
            "description": about,
            "schema": {"type": "integer", "minimum": 0} if part == "start" else _TEXT,
        }
        for part, about in (query or {}).items()
    ]
    error = {"type": "object", "properties": {"error": _TEXT}, "required": ["error"]}
    return {
        "operationId": name,
        "summary": summary,
        "parameters": [*in_path, *in_query],
        "responses": {
            "200": {"description": summary, "content": _content({"type": "object"})},
            **{
                code: {"description": about, "content": _content(error)}
                for code, about in errors.items()
            },
        },
    }


def _content(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
