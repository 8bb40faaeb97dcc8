"""The OpenAPI document of the pages' JSON, from the table of pages."""

import re
from collections.abc import Mapping
from typing import Any

from orchestrator.serve.access import AccessRules
from orchestrator.serve.openapi_forms import form_paths
from orchestrator.serve.page_table import PAGES, Page
from transexplain.version import __version__

_ERRORS = {
    "404": "no such run, group, entity, class or item",
    "422": "a value of the query cannot be read",
    "503": "the database is away",
}


def document(rules: AccessRules, features: Mapping[str, bool]) -> dict[str, Any]:
    """OpenAPI 3.1: every page with `.json` behind its path, and the forms that are switched on."""
    reads = "" if any(features.values()) else ", read-only"
    found: dict[str, Any] = {
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
        found["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        found["security"] = [{"token": []}]
    return found


def _operation(page: Page) -> dict[str, Any]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", page.path)
    ]
    in_query = [
        {
            "name": name,
            "in": "query",
            "description": about,
            "schema": {"type": "integer", "minimum": 0} if name == "start" else {"type": "string"},
        }
        for name, about in page.query.items()
    ]
    errors = {
        code: {
            "description": about,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "properties": {"error": {"type": "string"}},
                        "required": ["error"],
                    }
                }
            },
        }
        for code, about in _ERRORS.items()
    }
    answer = {
        "description": page.summary,
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
    return {
        "operationId": page.name,
        "summary": page.summary,
        "parameters": [*in_path, *in_query],
        "responses": {"200": answer, **errors},
    }
