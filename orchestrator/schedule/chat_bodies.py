"""Bodies that Slack's incoming webhooks and Teams' workflows take, made of a notice."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.schedule.notice import Notice, shortened

_SECTION = 3_000  #: characters of a text of Slack
_CARD = 28 * 1024  #: bytes of a message of Teams
#: lengths of texts and lists, tried in turn until a body fits
_SIZES = ((1_000, 10), (500, 10), (250, 10), (100, 8), (40, 4))
_ESCAPES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
Body = Mapping[str, Any]


def slack_body(notice: Notice) -> bytes:
    """A message of Block Kit with a text for notifications.

    `&`, `<` and `>` of all texts are escaped, so that none becomes a mention or a link; `verbatim`
    keeps names and addresses in them from being made into links.
    """
    return encoded(_fitting(notice, _slack, _fits_slack))


def teams_body(notice: Notice) -> bytes:
    """A message with one Adaptive Card of at most 28 KB.

    Texts stand in text runs, in which no Markdown is read.
    """
    return encoded(_fitting(notice, _teams, lambda body: len(encoded(body)) <= _CARD))


def encoded(body: Body) -> bytes:
    """The JSON of a body."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def _fitting(notice: Notice, write: Callable[[Notice], Body], fits: Callable[[Body], bool]) -> Body:
    """The body with the longest texts that fit; an escape must not be cut, so texts are."""
    made: Body = {}
    for longest, most in _SIZES:
        made = write(shortened(notice, longest, most))
        if fits(made):
            break
    return made


def _fits_slack(body: Body) -> bool:
    texts = [body["text"], *(block["text"]["text"] for block in body["blocks"][:-1])]
    return max(map(len, texts)) <= _SECTION


def _slack(notice: Notice) -> Body:
    first, *others = notice.sentences or ("",)
    sections = [f"*{_escaped(notice.title)}*\n{_escaped(first)}", *_bulleted(others)]
    for heading, names in notice.lists:
        sections.append("\n".join([f"*{_escaped(heading)}*", *_bulleted(names)]))
    sections.append(_escaped(notice.counts))
    if notice.link:
        sections.append(f"<{_escaped(notice.link)}|Open the run>")
    blocks = [{"type": "section", "text": _mrkdwn(one)} for one in sections if one]
    source = {"type": "context", "elements": [_mrkdwn(_escaped(notice.source))]}
    return {"text": sections[0], "blocks": [*blocks, source]}


def _mrkdwn(text: str) -> Body:
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _bulleted(lines: Sequence[str]) -> list[str]:
    return ["\n".join(f"\N{BULLET} {_escaped(one)}" for one in lines)] if lines else []


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def _teams(notice: Notice) -> Body:
    body = [_runs(notice.title, weight="Bolder", size="Medium")]
    body += [_runs(one) for one in notice.sentences]
    for heading, names in notice.lists:
        body.append(_runs(heading, weight="Bolder"))
        body += [_runs(f"\N{BULLET} {name}", spacing="None") for name in names]
    if notice.counts:
        body.append(_runs(notice.counts))
    body.append(_runs(notice.source, subtle=True))
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.2",
        "body": body,
    }
    if notice.link:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open the run", "url": notice.link}]
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card,
    }
    return {"type": "message", "attachments": [attachment]}


def _runs(text: str, *, spacing: str | None = None, subtle: bool = False, **style: str) -> Body:
    run: dict[str, Any] = {"type": "TextRun", "text": text, **style}
    if subtle:
        run["isSubtle"] = True
    block: dict[str, Any] = {"type": "RichTextBlock", "inlines": [run]}
    if spacing:
        block["spacing"] = spacing
    return block
