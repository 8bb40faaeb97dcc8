"""Clients of the pages with forms that do something, and forms as a browser fills them."""

from typing import Any

from starlette.testclient import TestClient

from orchestrator.serve.access import AccessRules
from orchestrator.serve.application import application
from transexplain.store.database import Database

JSON = {"Accept": "application/json"}
OWN = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}


#: of a client, not of its server
_OF_CLIENT = ("client", "cookies", "raise_server_exceptions")


def acting_client(
    reading: Database, *, rules: AccessRules | None = None, **more: Any
) -> TestClient:
    """A client of a server at http://localhost, perhaps with an `operator`; to be entered."""
    settings = {name: more.pop(name) for name in _OF_CLIENT if name in more}
    app = application(reading, rules or AccessRules(), **more)
    return TestClient(app, base_url="http://localhost", follow_redirects=False, **settings)


def form_of(client: TestClient, address: str, **headers: str) -> dict[str, Any]:
    """The JSON of a form's page, whose cookie the client keeps."""
    answer = client.get(address, headers={**JSON, **headers})
    assert answer.status_code == 200, answer.text
    return answer.json()


def told(client: TestClient, address: str) -> dict[str, Any]:
    """The JSON of a page that is there."""
    answer = client.get(address, headers=JSON)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()
