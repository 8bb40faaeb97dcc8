"""Addresses of servers: what is refused, and that no piece of a password is ever shown."""

from collections.abc import Callable
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
        database = Database(url)
        printed = f"{database.name} {database!r}"
        database.close()
        open_database(url).close()
    except TransExplainError as error:
        return f"{shown_url(url)} {error}"
    return printed


def shown_by_broker(url: str) -> str:
    with pytest.raises(TransExplainError) as refusal:  # nobody listens there
        check_broker(Settings(broker_url=url))
    return f"{shown_url(url)} {refusal.value} {Settings(broker_url=url)!r}"


def shown_by_webhook(url: str) -> str:
    with pytest.raises(TransExplainError) as refusal:
        signed_post.post(url, b"{}", delivery="once")
    return f"{signed_post.shown(url)} {refusal.value}"


def pieces(password: str) -> set[str]:
    """Of four characters, a letter or digit among them: punctuation is in every message."""
    found = {password[at : at + 4] for at in range(len(password) - 3)}
    return {one for one in found if any(c.isalnum() for c in one)}


def leaked(printed: str, harmless: str, *passwords: str) -> set[str]:
    """Pieces of passwords in a message that does not hold them with a harmless password."""
    found = {one for password in passwords for one in pieces(password)}
    return {one for one in found if one in printed and one not in harmless}


#: how a server shows an address in its messages, and the address with room for a password
PLACES = [
    *((shown_by_database, url) for url in DATABASES),
    *((shown_by_broker, url) for url in BROKERS),
    (shown_by_webhook, "https://me:{}@127.0.0.1:1/hook"),
]


@pytest.fixture(scope="module")
def harmless() -> str:
    """The messages about the same addresses with a harmless password, or with a broken one."""
    words = ("x", "x@", "x%20")
    printed = [shown(url.format(word)) for shown, url in PLACES[:-1] for word in words]
    printed += [
        shown_by_webhook(f"http://{word}@127.0.0.1:1/") for word in ("x:x", "x/x", "x:1/", "")
    ]
    return " ".join((*printed, *DATABASES, *BROKERS))


@pytest.mark.parametrize("escaped", [False, True])
@given(password=PASSWORDS, place=st.sampled_from(PLACES))
@example("p@sekretpw", PLACES[0])
@example("p/sekretpw", PLACES[0])
@example("sekret&pw&word", PLACES[4])
@example("sekret=pw", PLACES[5])
@example("p@sekretpw", PLACES[len(DATABASES)])
@example("p#sekretpw", PLACES[len(DATABASES) + 3])
@example("p;redis://sekretpw", PLACES[len(DATABASES)])
@example("1234/sekretpw", PLACES[len(DATABASES) + 3])
@example("7979/sekretpw", PLACES[-1])
@example("sekretpw", PLACES[-1])
def test_no_server_reveals_a_password(
    harmless: str, escaped: bool, password: str, place: tuple[Callable[[str], str], str]
) -> None:
    shown, template = place
    written = quote(password, safe="") if escaped else password
    printed = shown(template.format(written))
    assert not leaked(printed, harmless, password, written), printed


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pw@db.example:5432/name?sslmode=require", None),
        ("postgresql://me:p@ss@db/x", "postgresql://me:***@db/x"),
        *((f"postgresql://me:p{odd}ss@db/x", "postgresql://***") for odd in "/?#"),
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


#: addresses that name no server of their kind, or another one than they seem to
INVALID_BROKERS = [
    *("redis://127.0.0.1/abc", "redis://127.0.0.1/-1", "redis://127.0.0.1/0/1"),
    *("redis://h:99999/", "redis://h:0/", "redis://h:abc/", "redis://h:/0", "redis://h:\u0661/0"),
    *("redis://[::1/0", "redis://[zz]:1/0", "redis://[]:1/0", "redis://", "redis:///0"),
    *("redis://:pw@:1/0", "amqp://u:pw@h:99999//", "redis://-h/0", "redis://h%00/0"),
    *("redis://h\u2028/0", "redis://h/0\n", "redis://h/0?nonsense=1"),
    *("redis://h/0?credential_provider=os:system", "redis://h/0#x", "redis://a/0;"),
    *("redis://a/0;sqs://b", "127.0.0.1:6379", "", "redis://u@16[", "redis://u@]16"),
    *("amqp://[::1", "redis://[::1"),
]
INVALID_DATABASES = [
    *("sqlite:///x.db?nonsense=1", "sqlite:///x.db?timeout=abc"),
    *("sqlite:///x.db?mode=ro&mode=rw", "sqlite://h/x.db", "sqlite://me:pw@/x.db"),
    *("sqlite:///a\0b", "sqlite:////", "postgresql://h/db?nonsense=1"),
    *("postgresql://h/db?plugin=x", "postgresql://h/db?autocommit=1"),
    *("postgresql://h/db?prepare_threshold=x", "postgresql://h/db?connect_timeout=abc"),
    *("postgresql://h/db?connect_timeout=1&connect_timeout=2", "postgresql://h:99999/db"),
    *("postgresql://h:abc/db", "postgresql://[::1/db", "postgresql://me:p@ss@h/db"),
    *("postgresql://me:p/ss@h/db", "postgresql://me:p#ss@h/db", "postgresql://h/db#x"),
    *("postgresql+asyncpg://h/db", "::::", "postgresql://u@/n?host=a:=b:21&host=b:2"),
    *("sqlite://#x:/database", "sqlite://#x:y?uri=true", "sqlite:////a#b?x=1"),
    *("sqlite:///file:x.db?uri=true:&mode=ro",),
]
INVALID_WEBHOOKS = [
    *("http://h:99999/", "http://h:abc/", "http://h:/", "http://[::1/", "http://"),
    *("http:///x", "http://h\u2028/x", "http://b\u00fccher.example/", "http://h/a b"),
    *("http://h/\r\nX: y", "http://u:pw@h/x", "http://u@h/x", "http://h..:80/", "ftp://h/x"),
    *("http:/h", "h"),
]


@pytest.mark.parametrize(
    ("check", "url"),
    [
        *((check_broker_url, url) for url in INVALID_BROKERS),
        *((Database, url) for url in INVALID_DATABASES),
        *((signed_post.check, url) for url in INVALID_WEBHOOKS),
    ],
)
def test_an_invalid_address_is_refused(check: Callable[[str], object], url: str) -> None:
    with pytest.raises(ConfigurationError):
        check(url)
    if check is check_broker_url:
        with pytest.raises(ConfigurationError):
            check_broker(Settings(broker_url=url))
    if check is signed_post.check:
        with pytest.raises(ConfigurationError):  # one that was stored
            signed_post.post(url, b"{}", delivery="once")


def test_valid_addresses_are_accepted() -> None:
    for url in (
        *("redis://127.0.0.1:6379/0", "redis://a_b.example", "rediss://:p%40w@h:1/15"),
        *("amqp://guest:guest@127.0.0.1:5672//", "amqps://u:pw@[::1]/v%2Fh"),
        "redis://a/0;redis://b/0",
    ):
        check_broker_url(url)
    signed_post.check("https://hooks.example/a/GUID@GUID/b?c=d&e")
    signed_post.check("http://[::1]:8080/x")
    assert signed_post.shown("https://hooks.example:8443/secret") == "https://hooks.example:8443"


def test_messages_of_drivers_lose_the_pieces_of_secrets() -> None:
    url = "postgresql://me:sekret%20word@h/x?options=-chidden_name%3D1&sslmode=require"
    printed = without_secrets('parameter "hidden_name": sekret word, sekret%20word, require', url)
    assert printed == 'parameter "***": ***, ***, require'
