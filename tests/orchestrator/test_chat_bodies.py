"""Bodies for Slack and Teams: whatever names hold, they show it and obey none of it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fresh_stores import fresh_store
from hypothesis import given
from hypothesis import strategies as st
from report_samples import ANNS, WORTH, biased_run

from orchestrator.schedule.notices import (
    Notice,
    lines_of,
    notice_of,
    run_link,
    shortened,
    slack_body,
    teams_body,
)
from transexplain.analysis.groups.shard_aggregate import ControlResults
from transexplain.errors import ConfigurationError
from transexplain.reports.summary import summarise

HOSTILE = "<!channel> <@U1|x> & <https://evil.example|click> *b* _i_ [a](http://evil.example) `c`"
NOTICE = Notice(
    title="Audit nightly: done",
    sentences=("Two groups are explained differently.", "Accuracy is 0.9."),
    lists=(("Flagged groups", ("women for hired", "men for hired")),),
    counts="24 of 25 items explained, 1 failed.",
    link="https://audits.example/runs/r1",
    source="Schedule nightly, run r1",
)
#: of every kind that a text can be made of
TEXTS = st.text(st.characters(), max_size=2_000)


def hostile(text: str, count: int = 3) -> Notice:
    return replace(
        NOTICE,
        title=text,
        sentences=(text,) * count,
        lists=((text, (text,) * count),) * 3,
        source=text,
    )


def strings(found: Any) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, dict):
        for value in found.values():
            yield from strings(value)
    elif isinstance(found, list):
        for value in found:
            yield from strings(value)


def test_slack_gets_blocks_and_a_text_for_notifications() -> None:
    body = json.loads(slack_body(NOTICE))
    assert set(body) == {"text", "blocks"}
    assert body["text"].startswith("*Audit nightly: done*\nTwo groups")
    shown = [block["text"]["text"] for block in body["blocks"][:-1]]
    assert shown[2] == ("*Flagged groups*\n\N{BULLET} women for hired\n\N{BULLET} men for hired")
    assert shown[3] == NOTICE.counts
    assert shown[-1] == "<https://audits.example/runs/r1|Open the run>"
    assert all(block["text"]["verbatim"] for block in body["blocks"][:-1])
    assert body["blocks"][-1]["elements"][0]["text"] == "Schedule nightly, run r1"


def test_slack_makes_no_mention_and_no_link_of_a_text() -> None:
    body = json.loads(slack_body(replace(hostile(HOSTILE), link=None)))
    for text in strings(body):
        assert "<" not in text
        assert ">" not in text
    assert "&lt;!channel&gt; &lt;@U1|x&gt; &amp;" in body["blocks"][0]["text"]["text"]


@given(text=TEXTS, count=st.integers(0, 60))
def test_slack_bodies_keep_to_the_limits(text: str, count: int) -> None:
    body = json.loads(slack_body(hostile(text, count)))
    assert 1 <= len(body["blocks"]) <= 50
    assert len(body["text"]) <= 3_000
    for block in body["blocks"][:-1]:
        shown = block["text"]["text"]
        assert 1 <= len(shown) <= 3_000
        rest = shown.replace("<https://audits.example/runs/r1|Open the run>", "")
        assert "<" not in rest and ">" not in rest
        for entity in ("&amp;", "&lt;", "&gt;"):
            rest = rest.replace(entity, "")
        assert "&" not in rest, "an escape was cut"


def test_a_text_of_ampersands_still_fits() -> None:
    body = json.loads(slack_body(hostile("&" * 5_000, 60)))
    assert max(len(block["text"]["text"]) for block in body["blocks"][:-1]) <= 3_000
    assert "and 56 more" in json.dumps(body), "what is left out is counted"


def test_teams_gets_one_card_with_texts_that_are_no_markdown() -> None:
    body = json.loads(teams_body(hostile(HOSTILE)))
    assert body["type"] == "message"
    (attachment,) = body["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.2")
    # Markdown is read in TextBlock and Fact, and not in TextRun
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    runs = [run for block in card["body"] for run in block["inlines"]]
    assert {run["type"] for run in runs} == {"TextRun"}
    assert runs[0]["text"] == HOSTILE
    assert card["actions"] == [
        {"type": "Action.OpenUrl", "title": "Open the run", "url": NOTICE.link}
    ]
    assert (
        "actions"
        not in json.loads(teams_body(replace(NOTICE, link=None)))["attachments"][0]["content"]
    )


@given(text=TEXTS, count=st.integers(0, 200))
def test_teams_bodies_are_small(text: str, count: int) -> None:
    body = teams_body(hostile(text, count))
    assert len(body) <= 28 * 1024
    json.loads(body)


def test_a_card_of_wide_characters_is_small_and_says_what_is_left_out() -> None:
    body = teams_body(hostile("\N{GRINNING FACE}" * 5_000, 200))
    assert len(body) <= 28 * 1024
    assert "more" in body.decode()


def test_texts_are_one_line_without_what_terminals_and_browsers_obey() -> None:
    made = shortened(hostile("a\r\n\x1b[2J\u202eb\ud800\u2067c \N{ZERO WIDTH NON-JOINER}"), 50, 2)
    bad = "\N{REPLACEMENT CHARACTER}"
    assert made.title == f"a {bad}[2J{bad}b{bad}{bad}c \N{ZERO WIDTH NON-JOINER}"
    assert made.sentences[-1] == "and 1 more"
    assert len(shortened(hostile("x" * 99), 50, 2).title) == 50


def test_plain_lines() -> None:
    lines = lines_of(NOTICE).splitlines()
    assert lines[0] == "Audit nightly: done"
    assert lines[2] == "Two groups are explained differently."
    assert "- women for hired" in lines
    assert lines[-3:] == ["https://audits.example/runs/r1", "", "Schedule nightly, run r1"]


def test_links_lead_to_the_page_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRANSEXPLAIN_SERVE_URL", raising=False)
    assert run_link("r1") is None
    for base in ("https://a.example:8443/audits/", "https://a.example:8443/audits"):
        monkeypatch.setenv("TRANSEXPLAIN_SERVE_URL", base)
        assert run_link("r/1?") == "https://a.example:8443/audits/runs/r%2F1%3F"
    for wrong in (
        "javascript:alert(1)",
        "a.example",
        "https://u:secret@a.example/",
        "https://a/?x",
    ):
        monkeypatch.setenv("TRANSEXPLAIN_SERVE_URL", wrong)
        with pytest.raises(ConfigurationError, match="TRANSEXPLAIN_SERVE_URL") as caught:
            run_link("r1")
        assert "secret" not in str(caught.value)


def test_the_notice_of_a_run_says_what_is_flagged_and_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRANSEXPLAIN_SERVE_URL", raising=False)
    with fresh_store(tmp_path / "store.db") as db:
        with monkeypatch.context() as patch:
            for name in ANNS:
                patch.setitem(WORTH, name, 0.01)
            unbiased = biased_run(db, checked=ControlResults())
        run_id = biased_run(db, previous=unbiased)
        summary = summarise(db, run_id, gallery=0)
        made, alone = notice_of(summary, "nightly"), notice_of(summarise(db, unbiased), "nightly")
    assert summary.verdict is not None
    assert made.sentences[0] == summary.verdict.text
    assert len(made.sentences) == len(set(made.sentences)) == 4
    names = tuple(f"{group}: the mention changes the prediction" for group in ("anns", "bobs"))
    assert made.lists == (("Flagged groups", names), ("Newly flagged", names))
    assert made.counts == (
        "Flagged groups: 2; newly flagged: 2; no longer flagged: 0. "
        "36 of 38 items explained, 2 failed."
    )
    assert alone.lists == ()
    assert alone.counts == "Flagged groups: 0. 36 of 38 items explained, 2 failed."
    assert (made.title, made.link) == ("Audit sample audit: done", None)
    assert made.source == f"Schedule nightly, run {run_id}"
