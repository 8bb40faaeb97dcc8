"""Responses: a page or its JSON, and errors in plain words."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from orchestrator.serve import drawn_pages
from orchestrator.serve.links import RefusedError

#: key of a request's scope: whether its path wants JSON
JSON = "transexplain.json"


def wants_json(request: Request) -> bool:
    """Return whether the path or the Accept header wants JSON and no page."""
    accepted = request.headers.get("accept", "")
    return bool(request.scope.get(JSON)) or (
        "application/json" in accepted and "text/html" not in accepted
    )


def sent(body: bytes, as_json: bool, status: int = 200, **headers: str) -> Response:
    """The answer with a page, or with JSON."""
    kind = "application/json" if as_json else "text/html; charset=utf-8"
    return Response(body, status, headers={"Vary": "Accept", **headers}, media_type=kind)


def answered(
    request: Request, template: str, document: Mapping[str, Any], drawing: Mapping[str, Any]
) -> Response:
    """The response with a document, or with the page that draws it."""
    if wants_json(request):
        return sent(drawn_pages.json_bytes(document), True)
    names = {**document, **drawing, **_features_of(request)}
    return sent(drawn_pages.html(template, **names), False)


def problem(request: Request, error: RefusedError) -> Response:
    """The page of an error, with a link to go on."""
    if wants_json(request):
        body = drawn_pages.json_bytes({"error": error.text})
        return sent(body, True, error.status, **error.headers)
    body = drawn_pages.html(
        "problem",
        title=error.title,
        text=error.text,
        back=error.back,
        here="problem",
        **_features_of(request),
    )
    return sent(body, False, error.status, **error.headers)


def set_cookie(
    response: Response, request: Request, name: str, value: str, max_age: int | None = None
) -> None:
    """Set a cookie that scripts and pages elsewhere do not have."""
    secure = request.url.scheme == "https"
    response.set_cookie(name, value, max_age, httponly=True, samesite="strict", secure=secure)


def _features_of(request: Request) -> dict[str, bool]:
    """The features of this server in addition to its pages: `operate`, `live`, `reports`."""
    return dict(getattr(request.app.state, "features", {}))
