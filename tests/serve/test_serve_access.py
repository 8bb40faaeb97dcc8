"""Who may read: bound addresses, tokens, logins, proxies, names of hosts, and what pages forbid."""

import socket
import sys
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from orchestrator.serve.access import AccessRules, access_rules
from orchestrator.serve.links import link
from transexplain.errors import ConfigurationError
from transexplain.store.database import Database

TOKEN = "a-token-of-thirty-two-characters"
Serve = Callable[..., TestClient]
Call = Callable[..., tuple[int, str]]


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.0.1"])
def test_this_machine_needs_nothing(host: str) -> None:
    assert access_rules(host).everybody


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.org", ""])
def test_another_address_is_refused_without_a_token(host: str, token_file: Path) -> None:
    with pytest.raises(ConfigurationError, match="--token-file FILE"):
        access_rules(host)
    assert not access_rules(host, token_file=token_file).everybody
    proxied = access_rules(host, user_header="X-User", proxies=["10.0.0.7"])
    assert not proxied.everybody


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"user_header": "X-User"}, "go together"),
        ({"proxies": ["10.0.0.1"]}, "go together"),
        ({"user_header": "X-User", "proxies": ["proxy"]}, "is no address"),
        ({"user_header": "X User", "proxies": ["10.0.0.1"]}, "no name of a header"),
        ({"token_file": Path("absent")}, "cannot be read"),
        ({"token_file": Path("x"), "user_header": "X", "proxies": ["10.0.0.1"]}, "exclude"),
    ],
)
def test_wrong_options_are_named(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        access_rules("127.0.0.1", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "content", ["short", "", "two words of enough length", "x" * 5000, "\xff" * 9]
)
def test_a_weak_token_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "weak"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match="must hold one word"):
        access_rules("127.0.0.1", token_file=path)


def test_a_port_that_is_taken_is_named(call: Call, db: Database) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, printed = call("serve", "--db", f"sqlite:///{db.path}", "--port", port)
    assert code == 4 and f"nothing can listen at 127.0.0.1:{port}" in printed


def test_the_verb_names_its_extra(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, printed = call("serve")
    assert code == 2 and "pip install '.[serve]'" in printed


def test_a_token_opens_and_nothing_else_does(serve: Serve, run_id: str) -> None:
    client = serve(AccessRules(token=TOKEN))
    for given in ("", "Bearer", "Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN}x"):
        answer = client.get("/runs.json", headers={"Authorization": given} if given else {})
        assert answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Bearer")
        assert run_id not in answer.text
    good = client.get("/runs.json", headers={"Authorization": f"Bearer {TOKEN}"})
    assert good.status_code == 200 and run_id in good.text
    assert client.get("/openapi.json").status_code == 401


def test_a_login_sets_a_cookie_that_is_not_the_token(serve: Serve, run_id: str) -> None:
    client, wanted = serve(AccessRules(token=TOKEN)), link("runs", run_id)
    sent = client.get(wanted, headers={"Accept": "text/html"})
    assert sent.status_code == 303 and sent.headers["location"] == link("login", to=wanted)
    form = client.get(sent.headers["location"])
    assert 'type="password"' in form.text and run_id not in Path(form.text).name
    wrong = client.post(sent.headers["location"], data={"token": "x" * 32})
    assert wrong.status_code == 403 and "set-cookie" not in wrong.headers
    right = client.post(sent.headers["location"], data={"token": TOKEN})
    assert right.status_code == 303 and right.headers["location"] == wanted
    cookie = right.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and TOKEN not in cookie
    assert client.get(wanted, headers={"Accept": "text/html"}).status_code == 200
    other = serve(AccessRules(token=f"another-{TOKEN}"), cookies=dict(client.cookies))
    assert other.get("/runs.json").status_code == 401


@pytest.mark.parametrize("to", ["https://evil.example", "//evil.example", "/\\evil.example", "x"])
def test_a_login_leads_to_no_other_host(serve: Serve, to: str) -> None:
    client = serve(AccessRules(token=TOKEN))
    answer = client.post(link("login", to=to), data={"token": TOKEN})
    assert answer.status_code == 303 and answer.headers["location"] == "/"


def test_a_session_ends_and_cannot_be_made_up() -> None:
    rules = AccessRules(token=TOKEN)
    session = rules.session(now=1000.0)
    assert rules.session_is_good(session, now=1000.0 + 12 * 3600 - 1)
    assert not rules.session_is_good(session, now=1000.0 + 12 * 3600)
    until, _, proof = session.partition(".")
    for made_up in (f"{int(until) + 9}.{proof}", until, f"{until}.", "", "x.y", f"\u0661.{proof}"):
        assert not rules.session_is_good(made_up, now=1000.0)
    assert not AccessRules().session_is_good(AccessRules().session())


def test_a_proxy_is_believed_by_its_address_alone(serve: Serve, run_id: str) -> None:
    rules = AccessRules(user_header="x-user", proxies=(ip_network("10.0.0.0/24"),))
    there = serve(rules, client=("10.0.0.7", 1))
    assert there.get("/runs.json", headers={"X-User": "ann"}).status_code == 200
    assert there.get("/runs.json", headers={"X-User": " "}).status_code == 403
    assert there.get("/runs.json").status_code == 403
    assert there.get("/login").status_code == 404
    elsewhere = serve(rules, client=("10.0.1.7", 1))
    headers = {"X-User": "ann", "X-Forwarded-For": "10.0.0.7"}
    assert elsewhere.get("/runs.json", headers=headers).status_code == 403
    mapped = serve(rules, client=("::ffff:10.0.0.7", 1))
    assert mapped.get("/runs.json", headers={"X-User": "ann"}).status_code == 200


KNOWN = [
    "localhost",
    "LOCALHOST.:8321",
    "127.0.0.1:8321",
    "[::1]:8321",
    "192.168.1.4",
    "localhost:",
]
KNOWN += ["audits.example.org:80", "[fe80::1]", "[::ffff:127.0.0.1]"]
UNKNOWN = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8321", "localhost:x"]
UNKNOWN += ["localhost:123456", "localhost..", "ann@localhost", "127.1", "", "[fe80::1%evil]"]
UNKNOWN += ["[::1%25lo]", "[127.0.0.1]", "[localhost]", "::1", "[::1"]


@pytest.mark.parametrize("host", [*KNOWN, *UNKNOWN])
def test_only_its_own_names_are_answered(serve: Serve, host: str) -> None:
    client = serve(AccessRules(hosts=frozenset(["audits.example.org"])))
    answer = client.get("/runs.json", headers={"Host": host})
    assert answer.status_code == (200 if host in KNOWN else 421)
    assert host in KNOWN or "--allow-host" in answer.text
    assert not AccessRules().knows_host("localhost:\N{SUPERSCRIPT TWO}")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_only_reads_are_answered(client: TestClient, method: str) -> None:
    for path in ("/", "/runs", "/login"):
        assert client.request(method, path).status_code in (404, 405)
    assert client.head("/").status_code == 200


@pytest.mark.parametrize("path", ["/", "/runs.json", "/none", "/static/style.css", "/static/x"])
def test_every_answer_keeps_a_page_to_itself(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = dict(
        one.strip().split(" ", 1) for one in headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'" and policy["script-src"] == "'self'"
    assert policy["style-src"] == policy["form-action"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers, "another origin reads nothing"


def test_an_error_of_our_own_says_nothing_and_has_the_headers(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("hush")

    monkeypatch.setattr("orchestrator.serve.run_pages.browsing.list_page", fail)
    answer = serve(raise_server_exceptions=False).get("/runs.json")
    assert answer.status_code == 500 and "hush" not in answer.text
    assert "content-security-policy" in answer.headers


def test_probes_need_no_token_and_say_nothing_and_metrics_need_one(
    serve: Serve, run_id: str
) -> None:
    client = serve(AccessRules(token=TOKEN))
    for path, said in (("/healthz", "alive\n"), ("/readyz", "ready\n")):
        answer = client.get(path)
        assert (answer.status_code, answer.text) == (200, said)
        assert answer.headers["cache-control"] == "private, no-store"
        assert client.head(path).status_code == 200
        assert client.post(path).status_code == 405
        assert client.get(path, headers={"Host": "evil.example"}).status_code == 421
        assert client.get(f"{path}/../runs").status_code in (401, 404)
        assert client.get(f"{path}x").status_code == 401
    assert client.get("/metrics").status_code == 401
    good = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert good.status_code == 200 and good.headers["content-type"].startswith("text/plain")
    assert f'queue="transexplain.text.cpu",run="{run_id}",state="done"' in good.text
    modern = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
    headers = {"Authorization": f"Bearer {TOKEN}", **modern}
    sent = client.get("/metrics", headers=headers)
    assert sent.headers["content-type"].startswith("application/openmetrics-text")
    assert sent.text.endswith("# EOF\n")
