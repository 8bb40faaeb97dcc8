"""Custom methods: added in a process, used like shipped ones."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from tiny_models import bert, text_items, wordpiece

import transexplain as te
from orchestrator.spec.method_section import method_warnings
from transexplain.errors import ConfigurationError
from transexplain.explaining import Request, explain_items
from transexplain.methods import METHODS, TABLE, cost_of, facts_of, parameters_of
from transexplain.methods.batch_explanation import (
    BatchExplanation,
    CommonFields,
    Records,
    SeedRelevance,
    explain_targets,
)
from transexplain.methods.method_table import no_backward
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.items import Target
from transexplain.types.scores import MethodSpec
from transexplain.types.targets import ClassNames


def equal_shares(
    model: LoadedModel, batch: Any, resolve: Any, *, method: str, share: float = 1.0
) -> BatchExplanation:
    """The logit, cut into as many equal parts as there are positions."""
    logits = model.logits(batch).detach().double().numpy()
    lengths = batch.lengths.numpy()[:, None]

    def take(seed: Any, last: bool) -> SeedRelevance:
        whole = (seed * logits).sum(axis=1, keepdims=True)
        return SeedRelevance(np.repeat(share * whole / lengths, lengths.max(), axis=1))

    mark = CommonFields(method=method, at="inputs", unit="logits", double=True)
    return explain_targets(batch, logits, resolve, take, mark)


def without_name(model: Any, batch: Any, resolve: Any) -> None:
    """Takes no `method`."""


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    table, places = dict(TABLE), dict(METHODS._table)
    yield
    for now, before in ((TABLE, table), (METHODS._table, places)):
        now.clear()
        now.update(before)


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return te.wrap(bert(id2label={0: "bad", 1: "so-so", 2: "good"}).double(), tokenizer=wordpiece())


def test_an_added_method_explains_measures_and_audits(
    model: LoadedModel, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    te.add_method("equal-shares", equal_shares, source="a test", cost=no_backward)
    assert dir(te).count("add_method") == 1
    (one,) = te.explain(model, "a good film", "equal-shares", target="good", share=0.5)
    np.testing.assert_allclose(one.relevance, 0.5 * one.logit / 5)
    assert (one.method, one.class_name) == ("equal-shares", "good")
    (table,) = te.evaluate(model, ["a good film", "nice"], "equal-shares", "pruning", seed=1)
    assert {row.method for row in table.rows} == {"equal-shares", "random"}
    monkeypatch.chdir(tmp_path)
    keys: dict[str, Any] = {"progress": False, "evaluation": {"items": 0}}
    found = te.audit(model, ["a good film", "nice x"], method="equal-shares", **keys)
    assert found.summary.audited.method == "equal-shares"
    assert found.summary.counts.done == 2
    with pytest.raises(ConfigurationError, match="no parameter 'shear'; did you mean 'share'"):
        te.explain(model, "a", "equal-shares", shear=1)


def test_the_facts_of_an_added_method_are_the_given_ones() -> None:
    stated = {"unit": "score", "modalities": ("text",), "reads_target": "no"}
    te.add_method("equal-shares", equal_shares, cost=no_backward, **stated)
    facts = facts_of("equal-shares")
    assert {name: getattr(facts, name) for name in stated} == stated
    assert facts.source == "added in this process"
    assert parameters_of("equal-shares") == ("share",)
    assert cost_of(MethodSpec(name="equal-shares"), 5).of(3) == (1, 0)
    assert len(list(method_warnings("equal-shares", grouped=True))) == 2


def test_a_cell_that_is_run_again_replaces_it(model: LoadedModel) -> None:
    te.add_method("equal-shares", equal_shares, modalities=("image",))
    with pytest.raises(ConfigurationError, match="is for image, and this model reads text"):
        te.explain(model, "a film", "equal-shares")
    te.add_method("equal-shares", equal_shares)
    assert len(te.explain(model, "a film", "equal-shares")) == 1


def nested() -> Any:
    def inner(model: Any, batch: Any, resolve: Any, *, method: str) -> None:
        """Nobody finds it by its name."""

    return inner


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("My Method", equal_shares), "a method cannot be called 'My Method'"),
        ((equal_shares, "mine"), "a method cannot be called <function equal_shares"),
        (("lrp", equal_shares), "method 'lrp' is there already"),
        (("mine", nested()), "top level of a module or notebook"),
        (("mine", lambda model: model), "top level of a module or notebook, .*<fun"),
        (("mine", partial(equal_shares, share=2.0)), "top level of a module or notebook"),
        (("mine", "lrp"), "top level of a module or notebook, .*'lrp'"),
        (("mine", None), "not None"),
        (("mine", without_name), r"'mine' cannot be called .* def without_name\(model, ba"),
    ],
)
def test_an_invalid_method_is_refused(arguments: Any, words: str) -> None:
    before = replace(facts_of("lrp"))
    with pytest.raises(ConfigurationError, match=words):
        te.add_method(*arguments)
    with pytest.raises(ConfigurationError, match="unit cannot be 'percent'"):
        te.add_method("mine", equal_shares, unit="percent")  # type: ignore[arg-type]
    assert "mine" not in METHODS
    assert facts_of("lrp") == before


def with_holes(model: LoadedModel, batch: Any, resolve: Any, *, method: str) -> BatchExplanation:
    """Equal shares, NaN in all padding and in the texts that hold `x`."""
    whole = equal_shares(model, batch, resolve, method="equal-shares")
    assert isinstance(whole.attributions, Records)
    holes = np.arange(batch.inputs["input_ids"].shape[1]) >= batch.lengths.numpy()[:, None]
    holes |= np.array([["x" in one.item.content] for one in batch.encoded])

    def take(seed: Any, last: bool) -> SeedRelevance:
        return SeedRelevance(np.where(holes, np.nan, 1.0))

    mark = CommonFields(method=method, at="inputs", unit="logits", double=True)
    found = explain_targets(batch, whole.logits, resolve, take, mark)
    assert isinstance(found.attributions, Records)
    assert not found.attributions.are_finite
    assert whole.attributions.are_finite
    return found


def test_numbers_that_are_not_finite_cost_their_item_alone(model: LoadedModel) -> None:
    te.add_method("with-holes", with_holes)
    encoded = model.encode(text_items("a good film", "x nice", "nice"))
    request = Request(
        method=MethodSpec(name="with-holes"),
        targets=(Target(spec="predicted", kind="predicted"),),
        names=ClassNames(model.classes, {}),
    )
    ends = list(explain_items(model, encoded, request))
    kinds = [one.failure.kind if one.failure else "" for one in ends]
    assert kinds == ["", "model-error", ""]
    assert [one.attributions[0].relevance.tolist() for one in ends if one.attributions] == [
        [1.0] * 5,
        [1.0] * 3,
    ]
