"""Attributions, a summary and a small stored run for the tests of the reports."""

from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from plain_records import new_attribution

from transexplain.analysis.groups.answers import Answer
from transexplain.analysis.groups.counterfactuals import Observation
from transexplain.analysis.groups.entity_totals import Stratum
from transexplain.analysis.groups.mention_matching import Matcher, mentions_of
from transexplain.analysis.groups.shard_aggregate import ControlResults, ShardAggregate
from transexplain.store import results, runs, shards
from transexplain.store.database import Database
from transexplain.types.items import (
    Attribution,
    EntityGroup,
    ItemFailure,
    ItemOutcome,
    Ledger,
    PatchGrid,
)
from transexplain.types.plans import AuditPlan, DatasetRef, ImpactPlan, ModelRef, Shard, ShardResult
from transexplain.types.scores import MethodSpec, MetricScore
from transexplain.types.tokens import Token

CLASSES = ("negative", "positive")
ANNS = ("Ann", "Ava", "Amy", "Ada", "Abby", "Alma")
BOBS = ("Bob", "Ben", "Bill", "Bert", "Brad", "Beau")
#: both, as groups
GROUPS = (EntityGroup(name="anns", terms=ANNS), EntityGroup(name="bobs", terms=BOBS))
POSITIVE = Answer(name="positive", plus=(1,), minus=(0,))
WORTH = {"good": 1.0, "bad": -1.0, **dict.fromkeys(ANNS, 0.5)}  # the bias of this made-up model


class Visible(HTMLParser):
    """The text of an HTML document, its tags, and their attributes."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(document)
        self.close()

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def ledger(inputs: float, gap: float = 0.0) -> Ledger:
    entries = {"special": 0.2, "embeddings": 0.0, "biases": -0.1, "rules": 0.0}
    total = inputs + sum(entries.values())
    magnitude = abs(inputs) + 0.3
    return Ledger(inputs=inputs, **entries, total=total, gap=gap * magnitude, magnitude=magnitude)


def tokens_of(text: str) -> tuple[Token, ...]:
    """One token per blank-separated word, between CLS and SEP."""
    found, cursor = [Token(text="[CLS]", start=0, end=0, special=True)], 0
    for number, word in enumerate(text.split(" ")):
        end = cursor + len(word)
        if word:
            found.append(Token(text=word, start=cursor, end=end, word=number))
        cursor = end + 1
    return (*found, Token(text="[SEP]", start=len(text), end=len(text), special=True))


def text_attribution(
    text: str | None,
    tokens: Sequence[Token],
    relevance: Sequence[float],
    **changes: Any,
) -> Attribution:
    values: dict[str, Any] = {
        "item_id": "item-1",
        "class_index": 1,
        "class_name": "positive",
        "logit": float(np.sum(relevance)),
        "relevance": np.asarray(relevance, dtype=np.float32),
        "features": tuple(tokens),
        "text": text,
    }
    return new_attribution(**(values | changes))


def image_attribution(grid: Any, **changes: Any) -> Attribution:
    cells = np.asarray(grid, dtype=np.float32)
    rows, cols = cells.shape
    values: dict[str, Any] = {
        "features": PatchGrid(rows=rows, cols=cols, height=rows * 8, width=cols * 8, prefix=1),
        "relevance": cells,
        "logit": float(cells.sum()),
    }
    return replace(text_attribution(None, (), ()), **(values | changes))


def explained_text(index: int, text: str, label: str | None, **changes: Any) -> Any:
    """The outcome and attribution of a model that adds up `WORTH` over the words."""
    tokens = tokens_of(text)
    values = [0.1 if token.special else WORTH.get(token.text, 0.01) for token in tokens]
    logit = float(np.sum(values))
    predicted = CLASSES[logit > 0.3]
    outcome: dict[str, Any] = {
        "item_id": f"row-{index}",
        "index": index,
        "label": label,
        "predicted": predicted,
        "logits": (-logit, logit),
        "truncated": False,
        "positions": len(tokens),
        "text": text,
    }
    outcome |= changes
    attribution = text_attribution(
        text,
        tokens,
        values,
        item_id=outcome["item_id"],
        target="class:positive",
        ledger=ledger(logit - 0.1, gap=1e-7),
    )
    return ItemOutcome(**outcome), attribution


def save_last_shard(
    db: Database, run_id: str, explained: Sequence[tuple[ItemOutcome, Attribution]]
) -> None:
    """Save the shard that is left of a run, without totals, and close the run."""
    claim = shards.claim(db, run_id, "tester", 60.0)
    made = _shard_result(claim.shard, explained, (), (), None)
    results.save(db, claim, replace(made, aggregate={}))
    assert runs.finalise(db, run_id)


def stored_run(
    db: Database,
    explained: Sequence[tuple[ItemOutcome, Attribution]],
    failures: Sequence[ItemFailure] = (),
    *,
    groups: Sequence[EntityGroup] = (),
    shard_size: int = 7,
    leave: int = 0,
    sensitivity: float | None = None,
    previous: str | None = None,
    checked: ControlResults | None = None,
    scores: Sequence[MetricScore] = (),
    **plan: Any,
) -> str:
    """Save a run through the store's own functions; the last `leave` shards stay queued."""
    everything = sorted([*(one[0].index for one in explained), *(one.index for one in failures)])
    rows = len(everything)
    assert everything == list(range(rows))
    settings: dict[str, Any] = {
        "name": "sample audit",
        "model": ModelRef(source="models/m", classes=CLASSES, digest="d" * 64),
        "dataset": DatasetRef(
            source="x.csv", modality="text", snapshot="s.parquet", fingerprint="f" * 64, rows=rows
        ),
        "method": MethodSpec(name="lrp"),
        "targets": ("class:positive",),
        "groups": tuple(groups),
    }
    cut = tuple(
        Shard(index=number, start=start, stop=min(start + shard_size, rows))
        for number, start in enumerate(range(0, rows, shard_size))
    )
    run_id = runs.create(db, AuditPlan(**(settings | plan)), cut, previous)
    for shard in cut[: len(cut) - leave]:
        claim = shards.claim(db, run_id, "tester", 60.0, shard_index=shard.index)
        assert claim is not None
        made = _shard_result(shard, explained, failures, groups, sensitivity)
        if shard.index == 0 and checked is not None:
            total = ShardAggregate.from_json(made.aggregate)
            total.checked.merge(checked)
            made = replace(made, aggregate=total.to_json())
        if shard.index == 0:
            made = replace(made, scores=tuple(scores))
        results.save(db, claim, made)
    runs.finalise(db, run_id)
    return run_id


def _shard_result(
    shard: Shard,
    explained: Sequence[tuple[ItemOutcome, Attribution]],
    failures: Sequence[ItemFailure],
    groups: Sequence[EntityGroup],
    sensitivity: float | None,
) -> ShardResult:
    inside = [one for one in explained if shard.start <= one[0].index < shard.stop]
    aggregate = ShardAggregate()
    matcher = Matcher(groups) if groups else None
    mentions = []
    for outcome, attribution in inside:
        aggregate.add(outcome, [attribution])
        if sensitivity is not None:
            aggregate.add_sensitivity(sensitivity)
        found = mentions_of(attribution, matcher.find(outcome.text or "")) if matcher else []
        if found:
            stratum = Stratum(attribution.target, attribution.class_name, outcome.predicted)
            aggregate.entities.add(stratum, found, float(np.abs(attribution.relevance).sum()))
            mentions.extend(found)
        assert aggregate.gaps is not None and aggregate.outcomes is not None
        mentioned = {one.group for one in found}
        aggregate.gaps.add([attribution], mentioned)
        aggregate.outcomes.add(outcome, mentioned, answers=(POSITIVE,))
    return ShardResult(
        shard=shard,
        outcomes=tuple(one[0] for one in inside),
        attributions=tuple(one[1] for one in inside),
        failures=tuple(one for one in failures if shard.start <= one.index < shard.stop),
        mentions=tuple(mentions),
        aggregate=aggregate.to_json(),
        seconds=0.1,
    )


def swapped(effect: float = 0.98) -> list[Observation]:
    """Two Anns and two Bobs in each of 36 texts; Anns raise the log-odds by `effect`."""
    found = []
    for number in range(36):
        for group, names, worth in (("anns", ANNS, effect), ("bobs", BOBS, 0.0)):
            for name in (names[number % 6], names[(number + 1) % 6]):
                value = (2.0 if number % 3 else -2.0) + worth + 0.001 * (len(name) + number % 5)
                found.append(
                    Observation(
                        document=f"row-{number}",
                        group=group,
                        entity=name,
                        positions=6,
                        predicted=CLASSES[value > 0],
                        log_odds=(value,),
                    )
                )
    return found


def biased_run(db: Database, **changes: Any) -> str:
    """36 texts in which Anns raise `positive` by half a logit and Bobs do nothing; 2 failures.

    Where nothing else was checked, names were swapped, and the answer followed the bias.
    """
    changes.setdefault("checked", ControlResults(observations=swapped()))
    explained = []
    for number in range(36):
        name = (*ANNS, *BOBS)[number % 12]
        word = "good" if number % 3 else "bad"
        text = f"{name} was {word} today"
        explained.append(explained_text(number, text, CLASSES[number % 3 > 0]))
    failures = (
        ItemFailure(item_id="row-36", index=36, kind="empty-text", message="the text is empty"),
        ItemFailure(item_id="row-37", index=37, kind="null", message="the text is null"),
    )
    groups = (
        EntityGroup(name="anns", terms=ANNS, source="made up"),
        EntityGroup(name="bobs", terms=BOBS),
        EntityGroup(name="places", terms=("Paris",)),
    )
    return stored_run(db, explained, failures, groups=groups, **changes)


def image_run(db: Database, folder: Path, count: int = 6) -> str:
    """Pictures of two classes, each explained for the class that it is predicted as."""
    explained = []
    for index in range(count):
        value = float(index + 1)
        outcome = ItemOutcome(
            item_id=f"cat/{index}.png",
            index=index,
            label="cat",
            predicted="cat" if index % 2 else "dog",
            logits=(0.0, value) if index % 2 == 0 else (value, 0.0),
            truncated=False,
            positions=5,
            source=f"cat/{index}.png",
        )
        attribution = image_attribution(
            [[value, -value], [0.0, 0.0]],
            item_id=outcome.item_id,
            target="top:1",
            class_index=0,
            class_name=outcome.predicted,
            ledger=ledger(0.0),
        )
        explained.append((outcome, attribution))
    return stored_run(
        db,
        explained,
        model=ModelRef(source="m", modality="image", classes=("cat", "dog"), digest="d"),
        dataset=DatasetRef(
            source="imagefolder:x",
            modality="image",
            snapshot="s",
            fingerprint="f",
            rows=count,
            root=str(folder),
        ),
        targets=("top:1",),
    )


def write_picture(folder: Path, name: str, size: tuple[int, int] = (24, 16)) -> Path:
    from PIL import Image

    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.arange(size[0] * size[1] * 3, dtype=np.uint32) * 7 % 256
    Image.fromarray(pixels.astype(np.uint8).reshape(size[1], size[0], 3)).save(path)
    return path


#: the filing on `applicants`
APPLICATIONS = ImpactPlan(
    favourable=("positive",),
    sex="who",
    ethnicity="from",
    unknown=("?",),
    data_source="Applications of 2025.",
    exclusion_reason="Too few to say anything.",
)


def applicants() -> list[Any]:
    """Of women 2 in 4 are selected, of men 3 in 4; one is of unknown sex, one of a rare one."""
    people = [*[("f", n) for n in range(40)], *[("m", n) for n in range(40)], ("?", 0), ("x", 0)]
    return [
        explained_text(
            index,
            # longer texts have higher scores
            ("good" if number % 4 < (3 if sex == "m" else 2) else "bad") + " x" * (number % 7),
            None,
            meta={"who": sex, "from": "here"},
        )
        for index, (sex, number) in enumerate(people)
    ]
