"""Writes a sheet of random matches in context for a person to check, and computes the precision
from it.
"""

import csv
import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from transexplain.analysis.groups.intervals import wilson
from transexplain.errors import ConfigurationError
from transexplain.randomness import keyed_number
from transexplain.types.items import Mention

#: characters of context on each side
CONTEXT = 60
ALL = "all groups"
_COLUMNS = ("item", "group", "entity", "before", "match", "after", "start", "end", "correct")
#: what spreadsheets take for the beginning of a formula
_FORMULA = ("=", "+", "-", "@")
_ANSWERS = {
    **dict.fromkeys(("yes", "y", "1", "true", "x"), True),
    **dict.fromkeys(("no", "n", "0", "false"), False),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchPrecision:
    """The share of right matches among those of a group that a person checked."""

    group: str
    checked: int
    correct: int
    precision: float
    interval: tuple[float, float]  #: 95 %, Wilson's score interval


def sampled_mentions(mentions: Iterable[Mention], count: int, seed: int = 0) -> list[Mention]:
    """`count` matches at random, each place in an item once, whatever was explained there.

    The same seed gives the same matches of the same run. Memory does not grow with the run.
    """
    best: dict[tuple[str, str, int, int], tuple[int, Mention]] = {}
    threshold: list[tuple[int, tuple[str, str, int, int]]] = []  # the largest rank first
    for mention in mentions:
        key = (mention.item_id, mention.group, mention.start, mention.end)
        if key in best:
            continue
        rank = keyed_number(repr((seed, *key)), bits=256, algorithm="sha256")
        entry = (-rank, key)
        if len(best) < count:
            heapq.heappush(threshold, entry)
        elif entry > threshold[0]:
            _, lost = heapq.heapreplace(threshold, entry)
            del best[lost]
        else:
            continue
        best[key] = (rank, mention)
    return [mention for _, mention in sorted(best.values(), key=lambda pair: pair[0])]


def write_sheet(stream: TextIO, mentions: Sequence[Mention], texts: Mapping[str, str]) -> None:
    """The matches as CSV with an empty column `correct`; `texts` by item id.

    A cell that a spreadsheet would take for a formula gets an apostrophe before it.
    """
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for mention in mentions:
        text = texts[mention.item_id]
        before, after = text[: mention.start][-CONTEXT:], text[mention.end :][:CONTEXT]
        words = (
            mention.item_id,
            mention.group,
            mention.entity,
            before,
            text[mention.start : mention.end],
            after,
        )
        writer.writerow([*map(_safe, words), mention.start, mention.end, ""])


def read_sheet(path: Path) -> list[tuple[str, bool]]:
    """(group, whether it is right) of every match that has an answer in the column `correct`.

    Raises ConfigurationError: the file cannot be read, is no such sheet, an answer is neither yes
    nor no, or there is none.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            answers = list(_answers(path, csv.DictReader(stream, strict=True)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"cannot read the checked sheet {path}: {error}") from error
    if not answers:
        raise ConfigurationError(f"{path}: the column correct is empty; write yes or no into it")
    return answers


def checked_precisions(path: Path, groups: Collection[str]) -> list[MatchPrecision]:
    """The precisions that a filled sheet gives of a run with these groups.

    Raises ConfigurationError as `read_sheet`, and for a sheet with a group that the run has not.
    """
    answers = read_sheet(path)
    if foreign := sorted({group for group, _ in answers} - set(groups)):
        raise ConfigurationError(
            f"{path} holds group {foreign[0]!r}, which the run does not have; name the run that "
            "the sheet is of"
        )
    return precisions(answers)


def precisions(answers: Sequence[tuple[str, bool]]) -> list[MatchPrecision]:
    """The precision over all groups, then of each by name."""
    groups = sorted({group for group, _ in answers})
    precision = [_precision(ALL, [right for _, right in answers])]
    return precision + [
        _precision(g, [right for group, right in answers if group == g]) for g in groups
    ]


def _precision(group: str, answers: Sequence[bool]) -> MatchPrecision:
    correct, checked = sum(answers), len(answers)
    return MatchPrecision(
        group=group,
        checked=checked,
        correct=correct,
        precision=correct / checked,
        interval=wilson(correct, checked),
    )


def _answers(path: Path, reader: "csv.DictReader[str]") -> Iterator[tuple[str, bool]]:
    missing = [name for name in ("group", "correct") if name not in (reader.fieldnames or ())]
    if missing:
        raise ConfigurationError(
            f"{path} has no column {missing[0]!r}; a sheet is what `transexplain matches` wrote, "
            "separated by commas"
        )
    for row in reader:
        answer = (row["correct"] or "").strip().lower()
        if not answer:
            continue
        if answer not in _ANSWERS:
            raise ConfigurationError(
                f"{path}, line {reader.line_num}: correct is {answer!r}; write yes or no, or leave "
                "it empty"
            )
        yield _plain(row["group"]), _ANSWERS[answer]


def _safe(cell: str) -> str:
    shown = " ".join(cell.split())
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def _plain(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell
