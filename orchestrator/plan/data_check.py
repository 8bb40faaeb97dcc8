"""Checks the data for `validate`: rows that will fail and why, and which groups are mentioned."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from orchestrator.plan.audit_plan import Prepared
from transexplain.analysis.groups.entity_finder import EntityFinder
from transexplain.data.shard_reader import looked_at, read_shard, unread_rows
from transexplain.types.items import Item, ItemFailure
from transexplain.types.plans import AuditPlan, Shard

#: rows up to which every one is encoded, of texts (and graphs) and of pictures; of more, so many
ALL_TEXTS, ALL_PICTURES = 5_000, 300
_BLOCKS = 20  #: runs of rows that a sample consists of, evenly over the data
_TOGETHER = 64  #: items that are encoded at once
_SHOWN = 3  #: rows of a kind that are named


@dataclass(slots=True)
class FailingRows:
    """Rows of one kind of failure."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, one: ItemFailure) -> None:
        """Count a row, and name it if it is among the first."""
        self.count += 1
        if len(self.examples) < _SHOWN:
            self.examples.append(f"row {one.index} ({one.item_id}): {one.message}")


@dataclass(frozen=True, slots=True)
class DataCheck:
    """What was found in the rows of the data."""

    rows: int
    read: int  #: rows in which what cannot be read was looked for
    encoded: int  #: rows that were read and encoded as the run does it
    failing: dict[str, FailingRows]  #: by kind
    mentions: dict[str, int]  #: group -> items among those encoded

    @property
    def share_failing(self) -> float:
        """Of the rows that were encoded, the share that fails."""
        return sum(one.count for one in self.failing.values()) / max(1, self.rows)

    def lines(self) -> Iterator[str]:
        """For the terminal."""
        if self.encoded == self.rows:
            yield f"data: all {self.rows:,} rows were read and encoded"
        else:
            yield (
                f"data: {'all ' if self.read == self.rows else ''}{self.read:,} rows were read, "
                f"{self.encoded:,} encoded, in blocks evenly over the data"
            )
        if self.mentions:
            counts = ", ".join(f"{group} {count:,}" for group, count in self.mentions.items())
            yield f"items in a group, of {self.encoded:,}: {counts}"
        if not self.failing:
            yield "no row fails"
        for kind, found in sorted(self.failing.items(), key=lambda entry: -entry[1].count):
            yield f"{found.count:,} row{'s' * (found.count > 1)} will fail, {kind}:"
            yield from (f"  {example}" for example in found.examples)


def check_data(prepared: Prepared) -> DataCheck:
    """Read and encode the rows as the run will: all of small data, blocks of large data.

    Raises DataSourceError where the snapshot is gone.
    """
    plan = prepared.plan
    failing: dict[str, FailingRows] = {}
    unread: set[int] = set()
    for one in unread_rows(plan.dataset):
        unread.add(one.index)
        failing.setdefault(one.kind, FailingRows()).add(one)
    finder = EntityFinder(plan) if plan.groups else None
    mentions: Counter[str] = Counter({group.name: 0 for group in plan.groups})
    encoded = 0
    for block in _blocks(plan):
        items = [one for one in read_shard(plan.dataset, block) if one.index not in unread]
        encoded += block.stop - block.start
        for failure in _unencodable(prepared, items):
            failing.setdefault(failure.kind, FailingRows()).add(failure)
        if finder is None:
            continue
        for item in finder.in_turn(_readable(items)):
            if isinstance(item, ItemFailure):
                failing.setdefault(item.kind, FailingRows()).add(item)
            else:
                mentions.update(
                    finder.groups_in(item.text, item.annotations, item.meta, item.second_at)
                )
    read = sum(map(len, looked_at(plan.dataset)))
    return DataCheck(plan.dataset.rows, read, encoded, failing, dict(mentions))


def _blocks(plan: AuditPlan) -> Sequence[Shard]:
    rows = plan.dataset.rows
    most = ALL_PICTURES if plan.dataset.modality == "image" else ALL_TEXTS
    if rows <= most:
        return [Shard(index=0, start=0, stop=rows)]
    size, step = most // _BLOCKS, rows / _BLOCKS
    starts = [int(step * block) for block in range(_BLOCKS)]
    return [
        Shard(index=block, start=start, stop=start + size) for block, start in enumerate(starts)
    ]


def _readable(items: Sequence[Item | ItemFailure]) -> list[Item]:
    return [one for one in items if isinstance(one, Item)]


def _unencodable(prepared: Prepared, items: Sequence[Item | ItemFailure]) -> Iterator[ItemFailure]:
    """Items that the model cannot take, and pictures that cannot be read."""
    from transexplain.explaining import Request

    request = Request.from_plan(prepared.plan)
    yield from (one for one in items if isinstance(one, ItemFailure))
    readable = _readable(items)
    for start in range(0, len(readable), _TOGETHER):
        found = request.encode(prepared.model, readable[start : start + _TOGETHER])
        yield from (one for one in found if isinstance(one, ItemFailure))
