"""Entities of texts by the groups that they name, from a model's labels to the states of rates."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from kinds_of_audits import TYPES, tagger
from local_audits import aggregate_of
from tiny_audit import make_audit
from tiny_models import SPECIAL, WORDS

from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.analysis.groups.answers import answers_of
from transexplain.analysis.groups.group_cells import references_of
from transexplain.analysis.groups.group_verdicts import with_measures
from transexplain.analysis.groups.outcomes import Outcome, outcome_table
from transexplain.settings import Settings

NAMES = {"ours": ("film", "x"), "theirs": ("goods", "good")}
PER, NONE = TYPES.index("B-PER"), TYPES.index("O")


def hand_set() -> Any:
    """A model that reads every word by itself: names are PER, all but `x`, and others nothing."""
    module = tagger()
    recognised = {"film", "goods", "good"}
    with torch.no_grad():
        for name, weights in module.named_parameters():
            if "position_embeddings" in name or "token_type" in name or ".output.dense" in name:
                weights.zero_()
        words = module.bert(torch.arange(18)[:, None]).last_hidden_state[:, 0]  # (V, H)
        wanted = torch.full((18, len(TYPES)), -3.0)
        for place, word in enumerate(SPECIAL + WORDS):
            wanted[place, PER if word in recognised else NONE] = 3.0
        module.classifier.bias.zero_()
        module.classifier.weight.copy_((torch.linalg.pinv(words) @ wanted).T)
        assert (module.classifier(words).argmax(-1) == wanted.argmax(-1)).all()
    return module


def rows_of(shares: dict[str, float], *, labelled: bool) -> list[dict[str, Any]]:
    """120 texts of each group, all different; `shares` of these name its second name."""
    rows = []
    for group, names in NAMES.items():
        for number, around in enumerate(product(("a", "e", "un", "nice"), repeat=4)):
            if number >= 120:
                break
            name = names[number % 20 < round(20 * shares[group])]
            words = [*around[:2], name, *around[2:]]
            text = " ".join(words)
            begin = len(" ".join(around[:2])) + 1
            row: dict[str, Any] = {"text": text, "author": group}
            rows.append({**row, "label": [[begin, begin + len(name), "PER"]]} if labelled else row)
    return rows


def rates_of(
    folder: Path, shares: dict[str, float], *, labelled: bool = True, column: bool = False
) -> list[Outcome]:
    lexicon = folder / "groups.json"
    names = [f"author/{name}" if column else name for name in NAMES]
    groups: dict[str, Any] = {"check": 0, "reference": names[1], "complete": True}
    path = make_audit(
        folder,
        targets=["predicted"],
        evaluation={"items": 0},
        groups={**groups, **({"column": "author"} if column else {"lexicon": str(lexicon)})},
        data={
            "source": str(folder / "texts.jsonl"),
            "duplicates": "off",
            **({"meta": ["author"]} if column else {}),
        },
        shard_size=80,
    )
    hand_set().save_pretrained(folder / "model")
    lexicon.write_text(json.dumps({name: list(names) for name, names in NAMES.items()}))
    rows = rows_of(shares, labelled=labelled)
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepared = prepare_audit(load_spec(path), Settings(snapshot_dir=folder / "snapshots"))
    plan, total = prepared.plan, aggregate_of(prepared, 3)
    references = references_of(plan.reference, names)
    whole = names if column else ()
    answers, classes = answers_of(plan), plan.model.classes
    return with_measures(
        outcome_table(
            total.outcomes, answers, classes, references, plan.matters, plan.favourable, whole
        )
    )


@pytest.mark.parametrize("column", [False, True])
def test_names_that_are_not_recognised_are_found(tmp_path: Path, column: bool) -> None:
    [row] = rates_of(tmp_path, {"ours": 0.25, "theirs": 0.25}, column=column)
    assert (row.group.removeprefix("author/"), row.prediction) == ("ours", "PER")
    assert row.own.true_positive and row.other.true_positive and row.own.precision
    assert (row.own.true_positive.count, row.own.true_positive.total) == (90, 120)
    assert (row.other.true_positive.count, row.own.precision.share) == (120, 1.0)
    assert row.whole == column
    assert {measure.name: measure.state for measure in row.measures} == {
        "true positive rate": "outside",
        "precision": "inside",
    }


def test_without_labels_names_are_the_entities(tmp_path: Path) -> None:
    rows = {
        row.prediction: row
        for row in rates_of(tmp_path, {"ours": 0.25, "theirs": 0.25}, labelled=False)
    }
    assert rows["PER"].own.selected.count == 90 and rows["PER"].other.selected.count == 120
    assert [(m.name, m.state) for m in rows["PER"].measures] == [("rate", "outside")]
    assert [(m.name, m.state) for m in rows["LOC"].measures] == [("rate", "inside")]


def test_without_labels_or_names_there_are_no_rates(tmp_path: Path) -> None:
    shares = {"ours": 0.25, "theirs": 0.25}
    assert not rates_of(tmp_path, shares, labelled=False, column=True)
