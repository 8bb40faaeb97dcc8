"""The OpenAPI document of the pages' JSON, from the table of pages."""

import re
from collections.abc import Mapping
from typing import Any

from orchestrator.serve.access import AccessRules
from orchestrator.serve.acting_pages import ACTIONS, EXPLAIN_PATH, OPERATE_PATH
from orchestrator.serve.own_forms import TOKEN
from orchestrator.serve.page_table import PAGES, Page
from transexplain.version import __version__

_TEXT = {"type": "string"}
_REFUSED = {
    "403": "the token is old or of another form, or the request began on another site",
    "404": "no such run",
    "408": "the form did not come in time",
    "409": "the run as it is does not allow it",
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


def form_paths(features: Mapping[str, bool]) -> dict[str, Any]:
    """Paths of the features that are on: GET shows the form and its token, POST does it."""
    paths: dict[str, Any] = {}
    run = _in_path("run")
    if features.get("operate"):
        action = _in_path("action", enum=list(ACTIONS))
        fields = {"failed": {"type": "boolean", "description": "retry: failed items, too"}}
        paths[f"{OPERATE_PATH}.json"] = {
            "get": _shows("operate_form", "What an action on a run would do.", [run, action]),
            "post": _does(
                "operate", "Cancel, retry or resume a run.", [run, action], fields, _REFUSED
            ),
        }
    if features.get("live"):
        fields = {
            "text": {**_TEXT, "description": "for a model of texts"},
            "picture": {**_TEXT, "format": "binary", "description": "for a model of pictures"},
            "method": _TEXT,
            "beside": {**_TEXT, "description": "another method"},
            "target": {**_TEXT, "description": "predicted, class:NAME, top:2, ..."},
        }
        paths[f"{EXPLAIN_PATH}.json"] = {
            "get": _shows("explain_form", "Methods, targets and limits of a run's model.", [run]),
            "post": _does(
                "explain", "Explain a text or picture by a run's model.", [run], fields, _LIVE
            ),
        }
    return paths


def _in_path(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {**_TEXT, **more}}


def _shows(name: str, summary: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    content = _content({"type": "object", "required": [TOKEN]})
    answer = {"description": f"{summary} Sets a cookie.", "content": content}
    errors = {code: _REFUSED[code] for code in ("404", "409")}
    return _described(name, summary, parameters, answer, errors)


def _does(
    name: str,
    summary: str,
    parameters: list[dict[str, Any]],
    fields: Mapping[str, Any],
    errors: Mapping[str, str],
) -> dict[str, Any]:
    token = {**_TEXT, "description": "of the form, got with the cookie that is sent along"}
    schema = {"type": "object", "properties": {TOKEN: token, **fields}, "required": [TOKEN]}
    body = {"required": True, "content": {"multipart/form-data": {"schema": schema}}}
    answer = {"description": summary, "content": _content({"type": "object"})}
    return _described(name, summary, parameters, answer, errors, requestBody=body)


_ERRORS = {
    "404": "no such run, group, entity, class or item",
    "422": "a value of the query cannot be read",
    "503": "the database is away",
}


def document(rules: AccessRules, features: Mapping[str, bool]) -> dict[str, Any]:
    """OpenAPI 3.1: every page with `.json` behind its path, and the forms that are switched on."""
    reads = "" if any(features.values()) else ", read-only"
    schema: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "TransExplain",
            "version": __version__,
            "description": f"Runs of a store{reads}. A name in a path is percent-encoded; one "
            "that no path can hold is ~ and the hexadecimal digits of its UTF-8 bytes.",
        },
        "paths": {
            **{f"{page.path}.json": {"get": _operation(page)} for page in PAGES},
            **form_paths(features),
        },
    }
    if rules.token is not None:
        schema["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        schema["security"] = [{"token": []}]
    return schema


def _operation(page: Page) -> dict[str, Any]:
    in_query = [
        {
            "name": name,
            "in": "query",
            "description": about,
            "schema": {"type": "integer", "minimum": 0} if name == "start" else _TEXT,
        }
        for name, about in page.query.items()
    ]
    parameters = [*map(_in_path, re.findall(r"\{(\w+)\}", page.path)), *in_query]
    answer = {"description": page.summary, "content": _content({"type": "object"})}
    return _described(page.name, page.summary, parameters, answer, _ERRORS)


def _content(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _described(
    name: str,
    summary: str,
    parameters: list[dict[str, Any]],
    answer: Mapping[str, Any],
    errors: Mapping[str, str],
    **more: Any,
) -> dict[str, Any]:
    error = {"type": "object", "properties": {"error": _TEXT}, "required": ["error"]}
    refusals = {
        code: {"description": about, "content": _content(error)} for code, about in errors.items()
    }
    return {
        "operationId": name,
        "summary": summary,
        "parameters": parameters,
        **more,
        "responses": {"200": answer, **refusals},
    }
