import csv
import io
from pathlib import Path

import pytest
from plain_records import new_mention
from scipy.stats import norm

from transexplain.analysis.groups.matching_sheet import (
    ALL,
    precisions,
    read_sheet,
    sampled_mentions,
    write_sheet,
)
from transexplain.errors import ConfigurationError
from transexplain.types.items import Mention


def mention(item: int, start: int = 2, *, target: str = "predicted", group: str = "g") -> Mention:
    return new_mention(
        item_id=str(item),
        target=target,
        group=group,
        entity="Ann",
        surface="Ann",
        start=start,
        end=start + 3,
        relevance=0.5,
    )


def test_a_place_is_drawn_once_whatever_was_explained_there() -> None:
    mentions = [mention(i, target=t) for i in range(50) for t in ("predicted", "all")]
    drawn = sampled_mentions(mentions, 20, seed=3)
    assert len({one.item_id for one in drawn}) == len(drawn) == 20
    assert [m.item_id for m in sampled_mentions(reversed(mentions), 20, seed=3)] == [
        m.item_id for m in drawn
    ]
    assert {m.item_id for m in sampled_mentions(mentions, 20, seed=4)} != {m.item_id for m in drawn}
    assert len(sampled_mentions(mentions, 100)) == 50


def test_every_place_is_as_likely_as_another() -> None:
    counts = [0] * 10
    for seed in range(2000):
        for one in sampled_mentions(map(mention, range(10)), 3, seed):
            counts[int(one.item_id)] += 1
    expected, spread = 600, (2000 * 0.3 * 0.7) ** 0.5
    assert all(abs(count - expected) < 4 * spread for count in counts)


def test_the_sheet_shows_the_context_and_no_formula() -> None:
    stream = io.StringIO()
    text = "=1+2\n Ann, " + "x" * 100
    write_sheet(stream, [mention(7, 6, group="-g")], {"7": text})
    (row,) = csv.DictReader(io.StringIO(stream.getvalue()))
    assert row["before"] == "'=1+2"
    assert row["match"] == "Ann"
    assert row["after"] == ", " + "x" * 58
    assert (row["group"], row["correct"], row["start"]) == ("'-g", "", "6")


def test_answers_come_back_with_their_group(tmp_path: Path) -> None:
    path = tmp_path / "sheet.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        write_sheet(
            stream, [mention(i, group="=g") for i in range(4)], dict.fromkeys("0123", "abAnn")
        )
    lines = path.read_text(encoding="utf-8").splitlines()
    answered = [
        line + answer for line, answer in zip(lines, ["", "yes", "No", "", "1"], strict=True)
    ]
    path.write_text("\n".join(answered), encoding="utf-8")
    assert read_sheet(path) == [("=g", True), ("=g", False), ("=g", True)]


def test_precision_with_the_score_interval() -> None:
    whole, first, second = precisions([("a", True)] * 8 + [("a", False)] * 2 + [("b", True)] * 5)
    assert (whole.group, whole.checked, whole.correct) == (ALL, 15, 13)
    assert (first.group, first.precision, second.precision) == ("a", 0.8, 1.0)
    z, n, p = norm.ppf(0.975), 10, 0.8  # Wilson 1927, the roots of (p - x)^2 = z^2 x (1 - x) / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    assert first.interval == pytest.approx((centre - half, centre + half), rel=1e-12)
    assert second.interval[1] == 1.0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("group,correct\na,maybe\n", "correct is 'maybe'"),
        ("group,correct\na,\n", "correct is empty"),
        ("group;correct\na;yes\n", "column 'group'"),
        ("", "column 'group'"),
    ],
)
def test_an_invalid_sheet_is_reported(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "sheet.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=says) as caught:
        read_sheet(path)
    assert str(path) in str(caught.value)
