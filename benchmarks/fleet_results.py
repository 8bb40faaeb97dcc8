"""Results of shards that nobody computed, shaped as those of short English sentences.

Sizes follow SST-2's training texts under a WordPiece tokenizer: 9.4 words, about 12 positions with
the two special tokens, one target, a full ledger with two kinds of biases, relevance as float16.
"""

import random
from collections.abc import Iterator

import numpy as np

from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.types.items import Attribution, ItemOutcome, Ledger
from transexplain.types.plans import AuditPlan, DatasetRef, ModelRef, Shard, ShardResult
from transexplain.types.tokens import Token

CLASSES = ("negative", "positive")
_VOCABULARY = (
    "a the of and to in is that it as with film movie this for its an on but are be by not more "
    "one at than from all story have good so about has like characters comedy out most just or "
    "too you what if who even funny time into does no make some love performances way life"
)
#: results in memory that shards take turns in: rows differ by id and place only
_VARIETY = 64


def plan_of(rows: int, shard_size: int) -> AuditPlan:
    """A plan over `rows` texts of a data set and a model that do not exist."""
    return AuditPlan(
        name="simulated fleet",
        model=ModelRef(source="nowhere", classes=CLASSES, digest="0" * 64),
        dataset=DatasetRef(
            source="simulated",
            modality="text",
            snapshot="/nowhere.parquet",
            fingerprint="0" * 64,
            rows=rows,
        ),
        shard_size=shard_size,
    )


def texts(count: int) -> Iterator[str]:
    """Made-up sentences of 3 to 16 words."""
    rng, words = random.Random(0), _VOCABULARY.split()
    for _ in range(count):
        yield " ".join(rng.choices(words, k=rng.randint(3, 16)))


class MadeUp:
    """Makes the result of any shard from a few prepared ones."""

    def __init__(self) -> None:
        self._samples = [_sample(text) for text in texts(_VARIETY)]

    def result(self, shard: Shard, seconds: float) -> ShardResult:
        """What a worker would save for `shard`; `seconds` it says to have computed."""
        outcomes, attributions = [], []
        aggregate = ShardAggregate()
        for index in range(shard.start, shard.stop):
            text, tokens, relevance, ledger = self._samples[index % _VARIETY]
            logit, predicted = float(relevance.sum()), CLASSES[index % 2]
            outcome = ItemOutcome(
                item_id=str(index),
                index=index,
                label=predicted,
                predicted=predicted,
                logits=(-logit, logit),
                truncated=False,
                positions=len(tokens),
                text=text,
            )
            attribution = Attribution(
                item_id=outcome.item_id,
                method="lrp",
                target="predicted",
                rank=0,
                class_index=index % 2,
                class_name=predicted,
                logit=logit,
                relevance=relevance,
                unit="logits",
                at="encoder",
                features=tokens,
                ledger=ledger,
                text=text,
            )
            aggregate.add(outcome, (attribution,))
            outcomes.append(outcome)
            attributions.append(attribution)
        return ShardResult(
            shard=shard,
            outcomes=tuple(outcomes),
            attributions=tuple(attributions),
            failures=(),
            mentions=(),
            aggregate=aggregate.to_json(),
            seconds=seconds,
        )


def _sample(text: str) -> tuple[str, tuple[Token, ...], np.ndarray, Ledger]:
    rng = np.random.default_rng(len(text))
    tokens = [Token(text="[CLS]", start=0, end=0, special=True)]
    start = 0
    for number, word in enumerate(text.split()):
        tokens.append(Token(text=word, start=start, end=start + len(word), word=number))
        start += len(word) + 1
    tokens.append(Token(text="[SEP]", start=len(text), end=len(text), special=True))
    relevance = rng.normal(size=len(tokens)).astype(np.float32)
    terms = rng.normal(size=5)
    ledger = Ledger(
        inputs=terms[0],
        special=terms[1],
        embeddings=0.0,
        biases=terms[2],
        rules=0.0,
        total=float(terms[:3].sum()),
        gap=float(terms[3]) * 1e-7,
        magnitude=float(np.abs(terms).sum()),
        biases_by_kind={"linear": float(terms[2] - terms[4]), "norm": float(terms[4])},
    )
    return text, tuple(tokens), relevance, ledger
