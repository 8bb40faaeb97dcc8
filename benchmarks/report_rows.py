"""Shards for `benchmarks.report_at_scale`: made up, and counted by the code that audits use."""

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.auditing.shard_mentions import MentionCounter
from transexplain.data.shard_reader import items_per_shard
from transexplain.explaining import Explained
from transexplain.randomness import generator
from transexplain.store.run_totals import ShardSummary
from transexplain.types.items import (
    Attribution,
    EntityGroup,
    Item,
    ItemFailure,
    ItemOutcome,
    Ledger,
    Mention,
)
from transexplain.types.plans import AuditPlan, DatasetRef, ModelRef, Shard, ShardResult
from transexplain.types.scores import MethodSpec
from transexplain.types.tokens import Token

_TARGET, _CLASSES = "contrast:positive-negative", ("negative", "positive")
_VOCABULARY, _PLAIN, _NAMES = 30_000, 40, 20  #: words; of a text fewer than so many of each kind


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """What is made up."""

    items: int
    entities: int
    groups: int
    size: int | Literal["auto"] = "auto"  #: items of a shard

    @property
    def shard_size(self) -> int:
        """Items, of which the first fails: by default as a plan cuts data of this size."""
        return items_per_shard(self.size, self.items)

    @property
    def shards(self) -> int:
        """As many as hold the items; all are full."""
        return -(-self.items // self.shard_size)

    @property
    def cut(self) -> tuple[Shard, ...]:
        """The shards."""
        size = self.shard_size
        return tuple(
            Shard(index=index, start=index * size, stop=(index + 1) * size)
            for index in range(self.shards)
        )

    @cached_property
    def plan(self) -> AuditPlan:
        """Every group has its share of the frequent entities and of the rare ones."""
        names = [f"group-{number:02d}" for number in range(self.groups)]
        groups = tuple(
            EntityGroup(
                name=name, terms=tuple(map(_name, range(number, self.entities, self.groups)))
            )
            for number, name in enumerate(names)
        )
        return AuditPlan(
            name="made-up",
            model=ModelRef(source="made-up", classes=_CLASSES, digest="0" * 64),
            dataset=DatasetRef(
                source="made-up",
                modality="text",
                snapshot="/nowhere.parquet",
                fingerprint="0" * 64,
                rows=self.shards * self.shard_size,
            ),
            method=MethodSpec(name="lrp"),
            targets=(_TARGET,),
            groups=groups,
            reference=names[0],
            shard_size=self.shard_size,
        )


def shard_of(wanted: tuple[Corpus, int]) -> ShardResult:
    """One shard as an audit hands it to the store."""
    corpus, number = wanted
    shard, random = corpus.cut[number], generator("report at scale", number)
    mentioning, aggregate = MentionCounter(corpus.plan), ShardAggregate()
    worth = generator("report at scale", "worth").normal(size=corpus.entities) * 0.3
    outcomes: list[ItemOutcome] = []
    attributions: list[Attribution] = []
    mentions: list[Mention] = []
    for index in range(shard.start + 1, shard.stop):
        outcome, one = _explained(index, corpus, random, worth)
        aggregate.add(outcome, [one])
        done = Explained(
            item=Item(id=outcome.item_id, index=index, content=outcome.text),
            outcome=outcome,
            attributions=(one,),
        )
        mentions += mentioning.of(done, aggregate)[1]
        outcomes.append(outcome)
        attributions.append(one)
    failed = ItemFailure(
        item_id=f"row-{shard.start}", index=shard.start, kind="empty-text", message="no text"
    )
    return ShardResult(
        shard=shard,
        outcomes=tuple(outcomes),
        attributions=tuple(attributions),
        failures=(failed,),
        mentions=tuple(mentions),
        aggregate=aggregate.to_json(),
        seconds=1.0,
    )


def moved(packed: bytes, rows: int) -> bytes:
    """The summary of a shard so many rows of the dataset further on."""
    summary = msgspec.msgpack.decode(zlib.decompress(packed), type=ShardSummary)
    if summary.ledgers is None:
        return packed
    worst = summary.ledgers.row + rows
    ledgers = replace(summary.ledgers, row=worst, item=f"row-{worst}")
    return replace(summary, ledgers=ledgers).packed()


def _explained(
    index: int, corpus: Corpus, random: np.random.Generator, worth: np.ndarray
) -> tuple[ItemOutcome, Attribution]:
    """Relevance is noise, and what the names in the text are worth."""
    plain = _drawn(random, _VOCABULARY, int(random.integers(1, _PLAIN)))
    named = _drawn(random, corpus.entities, int(random.integers(1, _NAMES)))
    words = [f"word{number}" for number in plain] + [_name(number) for number in named]
    values = np.concatenate([np.zeros(len(plain)), worth[named]]) + random.normal(size=len(words))
    order = random.permutation(len(words))
    text = " ".join(words[place] for place in order)
    relevance = np.concatenate([[0.1], values[order], [0.2]]).astype(np.float32)
    logit = float(relevance.sum(dtype=np.float64))
    printed = _CLASSES[logit > 0]
    other = _CLASSES[logit <= 0]
    outcome = ItemOutcome(
        item_id=f"row-{index}",
        index=index,
        label=other if random.random() < 0.1 else printed,
        predicted=printed,
        logits=(-logit / 2, logit / 2),
        truncated=index % 50 == 0,
        positions=len(relevance),
        text=text,
    )
    attribution = Attribution(
        item_id=outcome.item_id,
        method="lrp",
        target=_TARGET,
        rank=0,
        class_index=None,
        class_name="positive-negative",
        logit=logit,
        relevance=relevance,
        unit="logits",
        at="encoder",
        features=_tokens(text),
        ledger=_ledger(logit, float(random.normal())),
        text=text,
    )
    return outcome, attribution


def _drawn(random: np.random.Generator, kinds: int, count: int) -> np.ndarray:
    """Numbers below `kinds`, as unequal as words are (the inverse of a Zipf law's sums)."""
    return np.minimum(kinds - 1, np.expm1(random.random(count) * np.log1p(kinds)).astype(int))


def _name(number: int) -> str:
    return f"entity{number:05d}"


def _tokens(text: str) -> tuple[Token, ...]:
    tokens, start = [Token(text="[CLS]", start=0, end=0, special=True)], 0
    for number, word in enumerate(text.split()):
        tokens.append(Token(text=word, start=start, end=start + len(word), word=number))
        start += len(word) + 1
    return (*tokens, Token(text="[SEP]", start=len(text), end=len(text), special=True))


def _ledger(logit: float, noise: float) -> Ledger:
    gap = noise * 1e-7
    return Ledger(
        inputs=logit - 0.3,
        special=0.3,
        embeddings=0.0,
        biases=0.0,
        rules=0.0,
        total=logit - gap,
        gap=gap,
        magnitude=abs(logit) + 1.0,
        biases_by_kind={},
        rules_by_kind={},
    )
