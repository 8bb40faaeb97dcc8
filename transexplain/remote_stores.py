"""The kinds of store that URLs name: how an address is written, and what a library says of a file.

Credentials come from the environment, as each library reads it, and never from a URL.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from transexplain.addresses import HIDDEN
from transexplain.errors import ConfigurationError, RemoteFileError, installing

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_BUCKET = re.compile(r"[A-Za-z0-9._-]+")
#: what a signed URL ends with; a lone `?` is a pattern's
_QUERY = re.compile(r"\?[A-Za-z0-9_.~-]+=")
_HUB = re.compile(
    r"(?P<repository>(?:datasets/)?[\w.-]+/[\w.-]+)"
    r"(?:@(?P<revision>refs/(?:convert|pr)/[\w.-]+|[\w.%-]+))?(?P<path>/.+)?"
)
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Store:
    """A kind of store."""

    form: str  #: how an address is written
    package: str = ""  #: that reads it; "": fsspec alone does
    extra: str = ""  #: that brings the package
    credentials: str = ""  #: how its credentials are given; "": it has none
    place: str = "its disk and permissions"  #: what to look at where it is away
    secrets: tuple[str, ...] = ()  #: variables whose values are never shown
    options: Mapping[str, Any] | None = None  #: of its file system


#: a listing that is kept would hide what other processes wrote since
_FRESH = {"use_listings_cache": False}
_EVERYWHERE = "in the environment of every process that reads it"
STORES: Mapping[str, Store] = {
    "file": Store(form="file:///PATH", options=_FRESH),
    "memory": Store(form="memory://PATH", options=_FRESH),
    "s3": Store(
        form="s3://BUCKET/KEY",
        package="s3fs",
        extra="s3",
        credentials="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN) or "
        f"AWS_PROFILE {_EVERYWHERE}",
        place="the store, AWS_ENDPOINT_URL and AWS_DEFAULT_REGION",
        secrets=("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
        options=_FRESH,
    ),
    "gs": Store(
        form="gs://BUCKET/KEY",
        package="gcsfs",
        extra="gcs",
        credentials=f"set GOOGLE_APPLICATION_CREDENTIALS {_EVERYWHERE}",
        place="the store and the project",
        options=_FRESH,
    ),
    "az": Store(
        form="az://CONTAINER/KEY",
        package="adlfs",
        extra="azure",
        credentials="set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (or "
        f"AZURE_STORAGE_SAS_TOKEN, or AZURE_STORAGE_CONNECTION_STRING) {_EVERYWHERE}",
        place="the store and AZURE_STORAGE_ACCOUNT_NAME",
        secrets=(
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_SAS_TOKEN",
            "AZURE_STORAGE_CONNECTION_STRING",
        ),
        options=_FRESH,
    ),
    "hf": Store(
        form="hf://datasets/ORG/NAME@REVISION/PATH",
        package="huggingface_hub",
        extra="hf",
        credentials=f"set HF_TOKEN {_EVERYWHERE}",
        place="the hub and HF_ENDPOINT",
        secrets=("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
        options={},  # its files are of a commit, which does not change
    ),
}
_BUCKETS = ("s3", "gs", "az")


def is_url(text: str) -> bool:
    """Whether `text` is written as a URL; a path of a file system is none."""
    return _URL.match(text) is not None


def scheme_of(url: str) -> str:
    """What stands before `://`."""
    return url.partition("://")[0]


def store_of(url: str) -> Store:
    """The store of a URL that was checked."""
    return STORES[scheme_of(url)]


def check_address(url: str) -> None:
    """Refuse a URL by the way it is written; nothing is asked of the store.

    Raises RemoteFileError: another scheme, no bucket, credentials or a signature in it (neither is
    shown).
    """
    found = _URL.match(url)
    scheme = found[1] if found else ""
    if scheme not in STORES:
        raise RemoteFileError(
            f"{scheme or 'this'}:// is no address that files are read from; write one of "
            f"{', '.join(f'{one}://' for one in STORES)}, or download it first"
        )
    rest = url[len(scheme) + 3 :]
    if scheme in _BUCKETS:
        _check_bucket(url, scheme, rest)
    elif scheme == "hf" and not _HUB.fullmatch(rest):
        raise RemoteFileError(
            f"hf://{HIDDEN} names no file of a repository; write {STORES[scheme].form}, without "
            f"credentials: {STORES[scheme].credentials}"
        )
    elif scheme == "file" and not rest.startswith("/"):
        raise RemoteFileError(f"{url} names no path of this machine; write file:///PATH")
    if not rest.strip("/"):
        raise RemoteFileError(f"{url} names no file; write {scheme}://PATH")


def _check_bucket(url: str, scheme: str, rest: str) -> None:
    store = STORES[scheme]
    place, _, key = rest.partition("/")
    if "@" in place or ":" in place:
        raise RemoteFileError(
            f"{scheme}://{HIDDEN}: a URL holds no credentials; write {store.form} and "
            f"{store.credentials}"
        )
    if _QUERY.search(rest):
        raise RemoteFileError(
            f"{url.partition('?')[0]}?{HIDDEN}: a URL holds no signature; write {store.form} and "
            f"{store.credentials}"
        )
    if not (_BUCKET.fullmatch(place) and key):
        raise RemoteFileError(f"{url} names no bucket and key; write {store.form}")


def require_package(url: str) -> None:
    """Raise ConfigurationError where the package that reads a URL is not installed."""
    store = store_of(url)
    if not store.package:
        return
    try:
        __import__(store.package)
    except ImportError:
        raise ConfigurationError(
            f"{store.package} is not installed, which {scheme_of(url)}:// needs: "
            f"{installing(store.extra)}"
        ) from None


def file_system(url: str) -> Any:
    """The fsspec file system of a URL."""
    import fsspec

    return fsspec.filesystem(scheme_of(url), **(store_of(url).options or {}))


def path_of(url: str) -> str:
    """What the file system calls the file at a URL."""
    scheme, _, rest = url.partition("://")
    return {"file": unquote(rest), "memory": "/" + rest.lstrip("/")}.get(scheme, rest)


def url_of(scheme: str, name: str) -> str:
    """The URL of what a file system calls `name`."""
    return Path(name).as_uri() if scheme == "file" else f"{scheme}://{name.lstrip('/')}"


def state_of(scheme: str, found: Mapping[str, Any]) -> str:
    """What changes with a file, from what the file system says of it."""
    if scheme == "file":
        return str(Path(found["name"]).stat().st_mtime_ns)
    if scheme == "memory":
        made = found["created"]  # a listing tells it in seconds
        return str(made if isinstance(made, float) else made.timestamp())
    if scheme == "hf":
        lfs = found.get("lfs")
        return str(lfs["sha256"] if lfs else found["blob_id"])
    return str(found["ETag" if scheme == "s3" else "etag"]).strip('"')


def exact(url: str) -> dict[str, Any]:
    """Options of a request for a range, so that no byte beside it is fetched."""
    return {"cache_type": "none"} if scheme_of(url) == "hf" else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class HubFile:
    """The parts of an `hf://` URL."""

    repository: str  #: `org/name`
    kind: str  #: dataset, model
    revision: str | None
    path: str  #: within the repository; "": all of it

    @property
    def pinned(self) -> bool:
        """Whether the revision is a commit, which names the same files for ever."""
        return self.revision is not None and _COMMIT.fullmatch(self.revision) is not None

    def at(self, commit: str) -> str:
        """The URL of the same file at a commit."""
        kind = "datasets/" if self.kind == "dataset" else ""
        path = f"/{self.path}" if self.path else ""
        return f"hf://{kind}{self.repository}@{quote(commit, safe='')}{path}"


def hub_file(url: str) -> HubFile:
    """The parts of an `hf://` URL; RemoteFileError where it names no repository."""
    found = _HUB.fullmatch(url.partition("://")[2])
    if found is None:
        raise RemoteFileError(f"{url!r:.80} names no repository; write hf://datasets/ORG/NAME/FILE")
    repository, revision = found["repository"], found["revision"]
    dataset = repository.startswith("datasets/")
    return HubFile(
        repository=repository.removeprefix("datasets/") if dataset else repository,
        kind="dataset" if dataset else "model",
        revision=None if revision is None else unquote(revision),
        path=(found["path"] or "").strip("/"),
    )


def without_secrets(text: str) -> str:
    """A message of a library without queries (they hold signatures) and credentials."""
    text = re.sub(r"\?[^\s'\")]+", f"?{HIDDEN}", text)
    for name in (name for store in STORES.values() for name in store.secrets):
        secret = os.environ.get(name, "")
        if len(secret) >= 4:  # a shorter one stands in many words
            text = text.replace(secret, HIDDEN)
    return text
