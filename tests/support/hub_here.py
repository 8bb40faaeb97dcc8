"""A stand-in on 127.0.0.1 of the file interface of a hub: commits, trees, and files by ranges."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from typing import Any
from unittest import mock
from urllib.parse import unquote, urlsplit

REPOSITORY = "house/reviews"
TOKEN = "hf_made_up_for_tests"


class HubHere:
    """One data set: its commits with their files, and its branches."""

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, bytes]] = {}
        self.branches: dict[str, str] = {}
        self.private = False
        self.given = 0  #: bytes of files that were given away
        self.port = 0

    def push(self, files: dict[str, bytes], branch: str = "main") -> str:
        """A new commit of a branch with these files; returns its name."""
        name = hashlib.sha1(f"{len(self.commits)}".encode()).hexdigest()
        self.commits[name] = dict(files)
        self.branches[branch] = name
        return name

    def commit_of(self, revision: str) -> str | None:
        """The commit that a branch or commit names."""
        name = self.branches.get(revision, revision)
        return name if name in self.commits else None


@contextmanager
def hub_here() -> Iterator[HubHere]:
    """A hub that is empty, which the process takes for the real one."""
    hub = HubHere()

    answers = type("Answers", (_Answers,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), answers)
    hub.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        endpoint = f"http://127.0.0.1:{hub.port}"
        template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        with (  # which the library reads from HF_ENDPOINT when it is imported
            mock.patch("huggingface_hub.constants.ENDPOINT", endpoint),
            mock.patch("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template),
        ):
            yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Answers(BaseHTTPRequestHandler):
    hub: HubHere
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if self.hub.private and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._json({"error": "who are you"}, 401, {"X-Error-Code": "RepoNotFound"})
            return
        for pattern, answer in (
            (rf"/api/datasets/{REPOSITORY}(?:/revision/(.+))?", self._described),
            (rf"/api/datasets/{REPOSITORY}/tree/([^/]+)/?(.*)", self._tree),
            (rf"/datasets/{REPOSITORY}/resolve/([^/]+)/(.+)", self._file),
        ):
            if match := re.fullmatch(pattern, path):
                revision, *rest = match.groups()
                commit = self.hub.commit_of(revision or "main")
                if commit is None:
                    self._absent("Revision")
                else:
                    answer(commit, *rest)
                return
        self._absent("Repo")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _absent(self, kind: str) -> None:
        self._json({"error": "it is not there"}, 404, {"X-Error-Code": f"{kind}NotFound"})

    def _described(self, commit: str) -> None:
        self._json({"id": REPOSITORY, "sha": commit, "tags": [], "siblings": []})

    def _tree(self, commit: str, folder: str) -> None:
        prefix = f"{folder}/" if folder else ""
        files = self.hub.commits[commit]
        below = {name: data for name, data in files.items() if name.startswith(prefix)}
        if not below:
            self._absent("Entry")
            return
        folders = {str(one) for name in below for one in PurePosixPath(name).parents}
        folders = {one for one in folders if one.startswith(prefix) and one != "."}
        shown = {*below, *folders}
        if "recursive=true" not in self.path.lower():
            shown = {name for name in shown if "/" not in name[len(prefix) :]}
        entries: list[Any] = [
            {"type": "file", "path": name, "oid": _oid(below[name]), "size": len(below[name])}
            if name in below
            else {"type": "directory", "path": name, "oid": _oid(name.encode()), "size": 0}
            for name in sorted(shown)
        ]
        self._json(entries)

    def _file(self, commit: str, name: str) -> None:
        data = self.hub.commits[commit].get(name)
        if data is None:
            self._absent("Entry")
            return
        status, named = 200, {"ETag": f'"{_oid(data)}"', "X-Repo-Commit": commit}
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last = int(match[1]), int(match[2] or len(data) - 1)
            named["Content-Range"] = f"bytes {first}-{min(last, len(data) - 1)}/{len(data)}"
            data, status = data[first : last + 1], 206
        self.hub.given += len(data)
        self._send(data, status, named)

    def _json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        named = {"Content-Type": "application/json", **(headers or {})}
        self._send(json.dumps(value).encode(), status, named)

    def _send(self, content: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing is written."""


def _oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
