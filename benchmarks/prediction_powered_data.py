"""Every mention of a corpus with its relevance by one method, worked out once and kept."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.entity_finder import EntityFinder
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.types.plans import AuditPlan, Shard
from transexplain.types.scores import MethodSpec

if TYPE_CHECKING:
    from orchestrator.plan import PreparedAudit

_Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Population:
    """Every mention of a corpus for one class, N in all."""

    item: NDArray[np.intp]  #: (N,) row of the data
    key: NDArray[np.intp]  #: (N,) place in `names`
    relevance: _Array  #: (N,) in logits
    names: tuple[tuple[str, str], ...]  #: (group, entity)
    rows: int  #: of the data


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """What is explained, for which class, and who is looked for in it."""

    model: str
    data: str
    lexicon: str
    target: str
    folder: Path  #: where relevance is kept


def method_of(name: str, params: Mapping[str, Any]) -> MethodSpec:
    """A method; the file of a learned explainer is named by its bytes, not by its path alone."""
    if name == "learned" and "explainer" in params and "sha256" not in params:
        from transexplain.methods.explainer_files import digest_of

        params = {**params, "sha256": digest_of(str(params["explainer"]))}
    return MethodSpec(name=name, params=dict(params))


def population(corpus: Corpus, method: MethodSpec) -> Population:
    """The mentions with their relevance by `method`; read from the folder where they are there."""
    prepared = _prepared(corpus, method)
    place = place_of(corpus.folder, prepared.plan)
    if not place.exists():
        _explain(prepared, place)
    return read(place)


def place_of(folder: Path, plan: AuditPlan) -> Path:
    """The file of a plan's relevance; its digest holds model, data, class, lexicon and method."""
    return folder / f"{plan.method.name}-{plan.digest[:16]}.npz"


def read(place: Path) -> Population:
    """What `write` wrote."""
    with np.load(place) as found:
        return Population(
            item=found["item"],
            key=found["key"],
            relevance=found["relevance"],
            names=tuple((str(group), str(entity)) for group, entity in found["names"]),
            rows=int(found["rows"]),
        )


def write(place: Path, found: Population) -> None:
    """Keep a population; the file is there whole or not at all."""
    half = place.with_suffix(".half.npz")
    np.savez(
        half,
        item=found.item,
        key=found.key,
        relevance=found.relevance,
        names=np.array(found.names),
        rows=found.rows,
    )
    half.replace(place)


def _prepared(corpus: Corpus, method: MethodSpec) -> "PreparedAudit":
    from orchestrator.plan import prepare_audit
    from orchestrator.spec import AuditSpec
    from transexplain.settings import Settings

    spec = AuditSpec.model_validate(
        {
            "model": corpus.model,
            "data": corpus.data,
            "targets": corpus.target,
            "method": {"name": method.name, "params": dict(method.params)},
            "groups": {"lexicon": corpus.lexicon, "check": 0},
            "evaluation": {"items": 0},
        }
    )
    return prepare_audit(spec, Settings(snapshot_dir=corpus.folder / "snapshots"))


def _explain(prepared: "PreparedAudit", place: Path) -> None:
    begun = time.perf_counter()
    names: dict[tuple[str, str], int] = {}
    found: list[tuple[int, int, float]] = []
    for row, group, entity, relevance in _mentions(prepared):
        found.append((row, names.setdefault((group, entity), len(names)), relevance))
    rows, keys, values = zip(*found, strict=True) if found else ((), (), ())
    kept = Population(
        item=np.array(rows, dtype=np.intp),
        key=np.array(keys, dtype=np.intp),
        relevance=np.array(values, dtype=np.float64),
        names=tuple(names),
        rows=prepared.plan.dataset.rows,
    )
    write(place, kept)
    print(
        f"{prepared.plan.method.name}: {len(found):,} mentions in {len(set(rows)):,} of "
        f"{kept.rows:,} items, {time.perf_counter() - begun:.0f} s",
        flush=True,
    )


def _mentions(prepared: "PreparedAudit") -> Iterator[tuple[int, str, str, float]]:
    """Row, group, entity and relevance of every mention.

    Only items that mention somebody are explained: the others bring nothing to any mean.
    """
    from transexplain.auditing.shard_mentions import MentionCounter
    from transexplain.data.shard_reader import read_shard
    from transexplain.explaining import Request, explain_items
    from transexplain.types.items import Item

    plan = prepared.plan
    finder, mentioning = EntityFinder(plan), MentionCounter(plan)
    mentioned = (
        item
        for item in read_shard(plan.dataset, Shard(index=0, start=0, stop=plan.dataset.rows))
        if isinstance(item, Item) and finder.find(item.content, (), item.meta).matches
    )
    for done in explain_items(prepared.model, mentioned, Request.from_plan(plan)):
        if done.outcome is not None:
            for one in mentioning.of(done, ShardAggregate())[1]:
                yield done.outcome.index, one.group, one.entity, one.relevance
