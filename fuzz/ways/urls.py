"""URLs of webhooks, mail servers, databases and brokers, and how they are shown.

The first line says which. `SECRET` in the rest stands for a password, where one may be: between
the first `:` behind the scheme and the last `@`, and in the value of an option that takes one.
"""

import re

from fuzz.guard import promise
from orchestrator.schedule import notices, signed_post
from transexplain.errors import TransExplainError
from transexplain.settings import Settings
from transexplain.store.database import Database
from transexplain.text.addresses import shown_url
from workers.app import make_app

#: letters and digits only, so that every form of quoting leaves it as it is
_PASSWORD = "h4mmerT1me"
_MARK = "SECRET"
_OPTION = re.compile(rf"((?:password|passwd|sslpassword|passfile|options)=[^&#@/]*?){_MARK}")


def target(data: bytes) -> None:
    """Nothing that is shown holds the password; what cannot be used is refused by name."""
    kind, _, rest = data.partition(b"\n")
    url = rest.decode("utf-8", "replace").replace(_PASSWORD, "")
    brokers = url.split(";")
    if all("://" in one for one in brokers):  # else it is unclear what would be a password
        url = ";".join(map(_with_password, brokers))
    try:
        shown = _used(kind, url)
    except TransExplainError as error:
        promise(_PASSWORD not in str(error), f"the error shows the password: {error}")
        raise
    promise(_PASSWORD not in shown, f"the password is shown: {shown}")


def _with_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    if rest.startswith("/"):
        return url  # a file, which has no password
    before, mark, after = rest.partition("?")
    authority, at, place = before.rpartition("@")
    user, colon, password = authority.partition(":")
    password = password.replace(_MARK, _PASSWORD)
    after = _OPTION.sub(rf"\g<1>{_PASSWORD}", after)
    return f"{scheme}{separator}{user}{colon}{password}{at}{place}{mark}{after}"


def _used(kind: bytes, url: str) -> str:
    if kind == b"webhook":
        signed_post.check(url)
        return signed_post.shown(url)
    if kind == b"smtp":
        server = notices.read_server(url)
        return f"{server.shown} {server!r}"
    if kind == b"database":
        database = Database(url)
        database.close()
        return f"{database.name} {database!r}"
    settings = Settings(broker_url=url, database_url=url)
    app = make_app(settings)
    app.connection_for_write()
    return f"{shown_url(url)} {settings!r}"
