"""The verdict of a scheduled run in the few lines that a person reads in a chat or a mail."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from transexplain.addresses import check_server, read_address, shown_url
from transexplain.errors import ConfigurationError
from transexplain.reports.report_records import Summary
from transexplain.reports.sections.previous_run import gone, newly
from transexplain.reports.verdict_changes import Difference, shown, verdict_changes

SERVE_URL = "TRANSEXPLAIN_SERVE_URL"
#: control characters, marks that turn the direction of what follows, and lone surrogates
_OBEYED = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_SENTENCES = 3  #: of the report's headline, behind the verdict
_END = "\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """What a message says; its texts are plain and may hold whatever names hold."""

    title: str
    sentences: tuple[str, ...]  #: the verdict first
    lists: tuple[tuple[str, tuple[str, ...]], ...]  #: heading and groups, none of them empty
    counts: str  #: of groups and of items; "": a test
    link: str | None  #: to the run's page; None: no base address is set
    source: str  #: schedule and run


def notice_of(summary: Summary, schedule: str) -> Notice:
    """The notice of a finished run."""
    audited, counts, previous = summary.audited, summary.counts, summary.previous
    verdict = [summary.verdict.text] if summary.verdict else []
    lines = [one.text for one in summary.headline[:_SENTENCES] if one.text not in verdict]
    lists = [("Flagged groups", _names(differences(summary)))]
    if previous is not None:
        lists.append(("Newly flagged", _names(newly(previous))))
        lists.append(("No longer flagged", _names(gone(previous))))
    flagged = "; ".join(f"{heading.lower()}: {len(names)}" for heading, names in lists)
    explained = f"{counts.done:,} of {counts.total:,} items explained, {counts.failed:,} failed"
    pending = f", {counts.pending:,} not worked on" if counts.pending else ""
    return Notice(
        title=f"Audit {audited.name}: {audited.state}",
        sentences=(*verdict, *lines),
        lists=tuple((heading, names) for heading, names in lists if names),
        counts=f"{flagged.capitalize()}. {explained}{pending}.",
        link=run_link(audited.run_id),
        source=f"Schedule {schedule}, run {audited.run_id}",
    )


def trial_notice(schedule: str, audit: str) -> Notice:
    """What `schedule test` sends."""
    return Notice(
        title=f"Audit {audit}: test message",
        sentences=("Verdicts of this schedule's runs will come here.",),
        lists=(),
        counts="",
        link=None,
        source=f"Schedule {schedule}",
    )


def run_link(run_id: str) -> str | None:
    """The page of a run in `transexplain serve`; None where `TRANSEXPLAIN_SERVE_URL` is not set.

    Raises ConfigurationError for a base address that no browser opens.
    """
    base = os.environ.get(SERVE_URL)
    if not base:
        return None
    address = read_address(base)
    what = f"{SERVE_URL}={shown_url(base)}"
    if address is None or address.scheme.lower() not in ("http", "https"):
        raise ConfigurationError(f"{what} is no http:// or https:// address")
    if address.user is not None or address.query is not None or address.fragment is not None:
        raise ConfigurationError(f"{what}: leave out user, password and what follows ? or #")
    check_server(address, what, remedy="write https://HOST:PORT/PATH, names of hosts in ASCII")
    path = quote(address.path.rstrip("/"), safe="/%")
    return f"{address.scheme}://{address.place}{path}/runs/{quote(run_id, safe='')}"


def shortened(notice: Notice, longest: int, most: int) -> Notice:
    """The notice with every text on one line of at most `longest` characters, lists of `most`."""

    def cut(text: str) -> str:
        return one_line(text, longest)

    def some(lines: Sequence[str]) -> tuple[str, ...]:
        left = len(lines) - most
        return (*map(cut, lines[:most]), *([f"and {left:,} more"] if left > 0 else []))

    return replace(
        notice,
        title=cut(notice.title),
        sentences=some(notice.sentences),
        lists=tuple((cut(heading), some(names)) for heading, names in notice.lists),
        source=cut(notice.source),
    )


def one_line(text: str, longest: int) -> str:
    """`text` on one line, without characters that are obeyed instead of shown."""
    shown = _OBEYED.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split()))
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}{_END}"


def lines_of(notice: Notice) -> str:
    """The notice as plain text."""
    parts = [notice.title, "\n".join(notice.sentences)]
    for heading, names in notice.lists:
        parts.append("\n".join((heading, *(f"- {name}" for name in names))))
    parts += [notice.counts, notice.link or "", notice.source]
    return "\n\n".join(filter(None, parts)) + "\n"


def differences(summary: Summary) -> list[Difference]:
    """Groups whose mention changes the prediction, or whose outcome differs."""
    verdicts = summary.groups.verdicts if summary.groups else ()
    return shown(verdict_changes((), verdicts))


def _names(rows: Sequence[Difference]) -> tuple[str, ...]:
    return tuple(sorted(f"{row.group}: {row.sentence}" for row in rows))
