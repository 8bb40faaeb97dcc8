"""What mkdocs calls while it builds the site: generated parts, pages from outside docs/, links.

A page asks for a generated part by a comment, `<!-- generated: NAME -->`; `PARTS` below has the
names. Pages are written so that they also read well where the repository is browsed: their links
are paths in the repository, and become links of the site here.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from architectures_part import architectures
from command_line_part import command_line
from keys_part import audit_keys, policy_keys, training_keys
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from monitoring_part import fleet_metrics
from registries_part import error_classes, method_facts, metric_facts, python_names
from sample_report import rendered
from store_part import metric_names, results, tables, views

_ROOT = Path(__file__).resolve().parents[2]
_MARKER = re.compile(r"<!-- generated: ([\w-]+) -->")
_BLOCK = re.compile(r"```.*?```", re.DOTALL)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^()\s]+)\)")

#: what stands in a marker -> the Markdown that takes its place
PARTS: Mapping[str, Callable[[], str]] = {
    "architectures": architectures,
    "audit-keys": audit_keys,
    "command-line": command_line,
    "error-classes": error_classes,
    "fleet-metrics": fleet_metrics,
    "methods": method_facts,
    "metrics": metric_facts,
    "policy-keys": policy_keys,
    "python-names": python_names,
    "sql-metrics": metric_names,
    "sql-results": results,
    "sql-tables": tables,
    "sql-views": views,
    "training-keys": training_keys,
}
#: files of the repository that are pages of the site, too
MOUNTED: Mapping[str, str] = {
    "CHANGELOG.md": "contribute/changelog.md",
    "CONTRIBUTING.md": "contribute/contributing.md",
    "SECURITY.md": "contribute/security.md",
    "benchmarks/README.md": "contribute/benchmarks.md",
    "examples/README.md": "contribute/examples.md",
    "fuzz/README.md": "contribute/fuzzing.md",
}
#: files that only the built site has: path below docs/ -> whether it is the redacted report
SAMPLES: Mapping[str, bool] = {"sample/report.html": False, "sample/redacted.html": True}
_ORIGIN = {site: source for source, site in MOUNTED.items()}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not below docs/, and the sample reports."""
    for source, site in MOUNTED.items():
        text = (_ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, site, content=text))
    for site, redacted in SAMPLES.items():
        files.append(File.generated(config, site, content=rendered(redacted=redacted)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put generated parts in their places and turn links of the repository into the site's."""
    site = str(page.file.src_uri)
    return with_site_links(_MARKER.sub(_part, markdown), site)


def _part(found: re.Match[str]) -> str:
    if found[1] not in PARTS:
        raise PluginError(f"no generated part {found[1]!r}; known: {', '.join(PARTS)}")
    return PARTS[found[1]]()


def with_site_links(markdown: str, site: str) -> str:
    """`markdown` of the page at `site` with links that hold there; code is left as it is."""
    pieces, end = [], 0
    for block in _BLOCK.finditer(markdown):
        pieces += [_linked(markdown[end : block.start()], site), block[0]]
        end = block.end()
    return "".join([*pieces, _linked(markdown[end:], site)])


def _linked(text: str, site: str) -> str:
    return _LINK.sub(lambda found: _link(found, site), text)


def _link(found: re.Match[str], site: str) -> str:
    picture, text, link = found.groups()
    target, hash_, anchor = link.partition("#")
    if not target or ":" in target:
        return found[0]
    place = site_place(target, site)
    if place is None:  # a file that the site does not have: its name is in the text
        return text
    relative = os.path.relpath(place, PurePosixPath(site).parent)
    return f"{picture}[{text}]({relative}{hash_}{anchor})"


def site_place(target: str, site: str) -> str | None:
    """Where the site has what a link of the page at `site` names; None: it does not have it."""
    origin = _ORIGIN.get(site, f"docs/{site}")
    path = os.path.normpath(PurePosixPath(origin).parent / target)
    if path in MOUNTED:
        return MOUNTED[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else None
