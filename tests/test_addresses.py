"""Addresses of servers: what is refused, and that no piece of a password is ever shown."""

from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.dispatch.queue import check_broker
from orchestrator.schedule import signed_post
from transexplain.errors import ConfigurationError, TransExplainError
from transexplain.settings import Settings
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.text.addresses import check_broker_url, shown_url, without_secrets

#: ports that nobody listens at, and addresses that nobody has
DATABASES = (
    "postgresql://me:{}@127.0.0.1:1/db",
    "postgresql://me:{}@127.0.0.1:99999/db",
    "postgresql://me:{}@[::1/db",
    "postgresql+psycopg://me:{}@127.0.0.1:1/db?connect_timeout=2",
    "postgresql://me@127.0.0.1:1/db?password={}",
    "postgresql://me:x@127.0.0.1:1/db?options=-c{}",
    "postgresql://me:x@127.0.0.1:1/db?nonsense={}",
    "postgres://me:x@127.0.0.1:1/db?passfile={}&sslmode=bad",
    "mysql://me:{}@h/db",
    "me:{}@127.0.0.1:1/db",
)
BROKERS = (
    "redis://:{}@127.0.0.1:1/0",
    "redis://{}@127.0.0.1:1/0",
    "rediss://me:{}@127.0.0.1:1/0",
    "amqp://me:{}@127.0.0.1:1//",
    "amqps://me:{}@127.0.0.1:1/v",
    "redis://me:{}@127.0.0.1:99999/0",
    "redis://127.0.0.1:1/0?password={}",
    "redis://127.0.0.1:1/0;redis://:{}@127.0.0.1:1/0",
    "sqs://me:{}@h",
    "{}@127.0.0.1",
)
#: letters and digits that no message holds, between all that has a meaning in a URL
SPECIAL = st.text(st.sampled_from("QZ79@:/?#;&=%[]+ \\,.*~\u2603\u00df"), min_size=4, max_size=12)
PASSWORDS = st.one_of(SPECIAL, st.text(min_size=4, max_size=20))


def shown_by_database(url: str) -> str:
    try:
        found = Database(url)
        printed = f"{found.name} {found!r}"
        found.close()
        open_database(url).close()
    except TransExplainError as error:
        return f"{shown_url(url)} {error}"
    return printed


def shown_by_broker(url: str) -> str:
    try:
        check_broker(Settings(broker_url=url))
    except TransExplainError as error:
        return f"{shown_url(url)} {error} {Settings(broker_url=url)!r}"
    raise AssertionError("nobody listens there")


def shown_by_webhook(url: str) -> str:
    try:
        signed_post.post(url, b"{}", key=b"key", delivery="once")
    except TransExplainError as error:
        return f"{signed_post.shown(url)} {error}"
    raise AssertionError("nobody listens there")


def pieces(password: str) -> set[str]:
    """Of four characters, a letter or digit among them: punctuation is in every message."""
    found = {password[at : at + 4] for at in range(len(password) - 3)}
    return {one for one in found if any(c.isalnum() for c in one)}


def leaked(printed: str, harmless: str, *passwords: str) -> set[str]:
    """Pieces of passwords in a message that does not hold them with a harmless password."""
    found = {one for password in passwords for one in pieces(password)}
    return {one for one in found if one in printed and one not in harmless}


@pytest.fixture(scope="module")
def harmless() -> str:
    """The messages about the same addresses with a harmless password, or with a broken one."""
    printed = [
        shown_by_database(url.format(word)) for url in DATABASES for word in ("x", "x@", "x%20")
    ]
    printed += [
        shown_by_broker(url.format(word)) for url in BROKERS for word in ("x", "x@", "x%20")
    ]
    printed += [
        shown_by_webhook(f"http://{word}@127.0.0.1:1/") for word in ("x:x", "x/x", "x:1/", "")
    ]
    return " ".join((*printed, *DATABASES, *BROKERS))


@pytest.mark.parametrize("escaped", [False, True])
@given(password=PASSWORDS, template=st.sampled_from(DATABASES))
@example("p@sekretpw", DATABASES[0])
@example("p/sekretpw", DATABASES[0])
@example("sekret&pw&word", DATABASES[4])
@example("sekret=pw", DATABASES[5])
def test_a_database_never_reveals_a_password(
    harmless: str, escaped: bool, password: str, template: str
) -> None:
    written = quote(password, safe="") if escaped else password
    printed = shown_by_database(template.format(written))
    assert not leaked(printed, harmless, password, written), printed


@pytest.mark.parametrize("escaped", [False, True])
@given(password=PASSWORDS, template=st.sampled_from(BROKERS))
@example("p@sekretpw", BROKERS[0])
@example("p#sekretpw", BROKERS[3])
@example("p;redis://sekretpw", BROKERS[0])
@example("1234/sekretpw", BROKERS[3])
def test_a_broker_never_reveals_a_password(
    harmless: str, escaped: bool, password: str, template: str
) -> None:
    written = quote(password, safe="") if escaped else password
    printed = shown_by_broker(template.format(written))
    assert not leaked(printed, harmless, password, written), printed


@given(password=PASSWORDS)
@example("7979/sekretpw")
@example("sekretpw")
def test_a_webhook_never_reveals_a_password(harmless: str, password: str) -> None:
    printed = shown_by_webhook(f"https://me:{password}@127.0.0.1:1/hook")
    assert not leaked(printed, harmless, password), printed


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pw@db.example:5432/name?sslmode=require", None),
        ("postgresql://me:p@ss@db/x", "postgresql://me:***@db/x"),
        ("postgresql://me:p/ss@db/x", "postgresql://***"),
        ("postgresql://me:p?ss@db/x", "postgresql://***"),
        ("postgresql://me:p#ss@db/x", "postgresql://***"),
        ("postgresql://me@/x?host=/run/postgresql&options=-cx", None),
        ("postgresql://me@db/x?a=1&b=2", "postgresql://me@db/x?***"),
        ("redis://token@h:1/0", "redis://***@h:1/0"),
        ("redis://:pa/ss", "redis://***"),
        ("redis://a:1/0;redis://:pw@b:1/0", "redis://a:1/0;redis://:***@b:1/0"),
        ("redis://:p;w@h:1/0", "redis://:***@h:1/0"),
        ("amqp://u:pw@[::1]:5672//", "amqp://u:***@[::1]:5672//"),
        ("sqlite:////data/a@b/c d.db?mode=ro", "sqlite:////data/a@b/c d.db?mode=ro"),
        ("sqlite:///a\x1b[2Jb", "sqlite:///a?[2Jb"),
        ("me:pw@host/x", "***"),
        ("", "***"),
    ],
)
def test_the_shown_parts_of_urls(url: str, shown: str | None) -> None:
    expected = shown or url.replace(":pw@", ":***@").replace("-cx", "***")
    assert shown_url(url) == expected


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("redis://127.0.0.1/abc", "is a number"),
        ("redis://127.0.0.1/-1", "is a number"),
        ("redis://127.0.0.1/0/1", "is a number"),
        ("redis://h:99999/", "1 to 65535"),
        ("redis://h:0/", "1 to 65535"),
        ("redis://h:abc/", "1 to 65535"),
        ("redis://h:/0", "1 to 65535"),
        ("redis://h:\u0661/0", "percent-encoded"),
        ("redis://[::1/0", "no IPv6"),
        ("redis://[zz]:1/0", "no IPv6"),
        ("redis://[]:1/0", "no host|no IPv6"),
        ("redis://", "names no host"),
        ("redis:///0", "names no host"),
        ("redis://:pw@:1/0", "names no host"),
        ("amqp://u:pw@h:99999//", "1 to 65535"),
        ("redis://-h/0", "name or address"),
        ("redis://h%00/0", "name or address"),
        ("redis://h\u2028/0", "percent-encoded"),
        ("redis://h/0\n", "percent-encoded"),
        ("redis://h/0?nonsense=1", "takes no options"),
        ("redis://h/0?credential_provider=os:system", "takes no options"),
        ("redis://h/0#x", "takes no options"),
        ("redis://a/0;", "cannot be read"),
        ("redis://a/0;sqs://b", "use redis://"),
        ("127.0.0.1:6379", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_an_invalid_broker_is_named(url: str, printed: str) -> None:
    with pytest.raises(ConfigurationError, match=printed):
        check_broker_url(url)
    with pytest.raises(ConfigurationError, match=printed):
        check_broker(Settings(broker_url=url))


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:6379/0",
        "redis://a_b.example",
        "rediss://:p%40w@h:1/15",
        "amqp://guest:guest@127.0.0.1:5672//",
        "amqps://u:pw@[::1]/v%2Fh",
        "redis://a/0;redis://b/0",
    ],
)
def test_valid_brokers_are_accepted(url: str) -> None:
    check_broker_url(url)


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("sqlite:///x.db?nonsense=1", "option"),
        ("sqlite:///x.db?timeout=abc", "option"),
        ("sqlite:///x.db?mode=ro&mode=rw", "more than once"),
        ("sqlite://h/x.db", "cannot be read"),
        ("sqlite://me:pw@/x.db", "cannot be read"),
        ("sqlite:///a\0b", "in-memory|NUL"),
        ("sqlite:////", "in-memory"),
        ("postgresql://h/db?nonsense=1", "option"),
        ("postgresql://h/db?plugin=x", "option"),
        ("postgresql://h/db?autocommit=1", "option"),
        ("postgresql://h/db?prepare_threshold=x", "option"),
        ("postgresql://h/db?connect_timeout=abc", "connect_timeout"),
        ("postgresql://h/db?connect_timeout=1&connect_timeout=2", "more than once"),
        ("postgresql://h:99999/db", "1 to 65535"),
        ("postgresql://h:abc/db", "1 to 65535"),
        ("postgresql://[::1/db", "no IPv6"),
        ("postgresql://me:p@ss@h/db", "cannot be read"),
        ("postgresql://me:p/ss@h/db", "cannot be read"),
        ("postgresql://me:p#ss@h/db", "cannot be read"),
        ("postgresql://h/db#x", "as %23"),
        ("postgresql+asyncpg://h/db", "not supported"),
        ("::::", "cannot be read"),
    ],
)
def test_an_invalid_database_is_named(url: str, printed: str) -> None:
    with pytest.raises(ConfigurationError, match=printed):
        Database(url)


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("http://h:99999/", "1 to 65535"),
        ("http://h:abc/", "1 to 65535"),
        ("http://h:/", "1 to 65535"),
        ("http://[::1/", "no IPv6"),
        ("http://", "no host"),
        ("http:///x", "no host"),
        ("http://h\u2028/x", "percent-encoded"),
        ("http://b\u00fccher.example/", "percent-encoded"),
        ("http://h/a b", "percent-encoded"),
        ("http://h/\r\nX: y", "percent-encoded"),
        ("http://u:pw@h/x", "user and password"),
        ("http://u@h/x", "user and password"),
        ("http://h..:80/", "name or address"),
        ("ftp://h/x", "no http"),
        ("http:/h", "no http"),
        ("h", "no http"),
    ],
)
def test_an_invalid_webhook_is_named(url: str, printed: str) -> None:
    with pytest.raises(ConfigurationError, match=printed):
        signed_post.check(url)
    with pytest.raises(ConfigurationError, match=printed):  # one that an earlier version stored
        signed_post.post(url, b"{}", key=b"key", delivery="once")


def test_valid_webhooks_are_accepted() -> None:
    signed_post.check("https://hooks.example/a/GUID@GUID/b?c=d&e")
    signed_post.check("http://[::1]:8080/x")
    assert signed_post.shown("https://hooks.example:8443/secret") == "https://hooks.example:8443"


def test_messages_of_drivers_lose_the_pieces_of_secrets() -> None:
    url = "postgresql://me:sekret%20word@h/x?options=-chidden_name%3D1&sslmode=require"
    printed = without_secrets('parameter "hidden_name": sekret word, sekret%20word, require', url)
    assert printed == 'parameter "***": ***, ***, require'


@pytest.mark.parametrize("url", ["redis://u@16[", "redis://u@]16", "amqp://[::1", "redis://[::1"])
def test_brackets_are_of_whole_ipv6_addresses(url: str) -> None:
    with pytest.raises(ConfigurationError, match="broker URL"):
        check_broker_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@/n?host=a:=b:21&host=b:2",
        "sqlite://#x:/database",
        "sqlite://#x:y?uri=true",
        "sqlite:////a#b?x=1",
        "sqlite:///file:x.db?uri=true:&mode=ro",
    ],
)
def test_databases_that_sqlalchemy_cannot_read_are_reported(url: str) -> None:
    with pytest.raises(ConfigurationError, match="database URL"):
        Database(url)
