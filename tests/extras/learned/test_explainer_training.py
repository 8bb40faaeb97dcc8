"""Explainers that are trained, alone and with their classifier: what is learned, kept, resumed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_trainings import StopAt, bert_folder, image_plan, text_plan

import transexplain as te
from transexplain.errors import ConfigurationError
from transexplain.extras.learned.explainer_training import Lessons, Teacher, fresh_explainer
from transexplain.extras.learned.learned_facts import read_facts
from transexplain.extras.training.classifiers import prepare
from transexplain.extras.training.training_plans import ExplainerSection, FitPlan, TrainingPlan
from transexplain.extras.training.training_runs import train
from transexplain.models.hidden_states import own_positions
from transexplain.models.load import load_model
from transexplain.rank_correlation import rank_similarity
from transexplain.types.scores import MethodSpec

Make = Callable[..., TrainingPlan]
SHORT = FitPlan(epochs=3, batch_size=8, seed=3)


def explained(
    make: Make, folder: Path, mode: str, *, layers: int = 2, **explainer: object
) -> TrainingPlan:
    """A tiny training with an explainer of one attention layer, for a text model of `layers`."""
    if make is text_plan and not (folder / "bert").is_dir():
        bert_folder(folder / "bert", layers)
    requested = ExplainerSection(**{"mode": mode, "depth": 1, **explainer})
    fields = {"explainer": requested, "explainer_fit": SHORT, "share": 0.25, "seed": 3}
    return make(folder, output=folder / mode, **fields)


@pytest.mark.parametrize(("make", "mode"), [(text_plan, "separate"), (image_plan, "joint")])
@pytest.mark.exhaustive
def test_a_written_explainer_explains_the_written_model(
    tmp_path: Path, make: Make, mode: str
) -> None:
    plan = explained(make, tmp_path, mode, layers=5)
    trained = train(plan, StopAt())
    model = load_model(trained.model)
    facts = read_facts(trained.explainer)
    assert (facts.base, facts.mode, facts.teacher.name) == (model.ref.digest, mode, "lrp")
    assert facts.agreement == trained.agreement
    assert facts.agreement.items > 0
    assert 1 < facts.forwards < 3
    assert set(facts.agreement.by_class) <= set(model.classes)
    held = prepare(replace(plan, source=trained.model, classes=None)).validation
    items = [one.encoded.item for one in held.entries]
    inputs = [dict(one.encoded.inputs) for one in held.entries]
    given = items if model.modality == "text" else inputs
    requested = {"explainer": str(trained.explainer), "target": "predicted"}
    learned = te.explain(model, given, "learned", **requested)
    taught = te.explain(model, given, "lrp", target="predicted")
    for one, other in zip(learned, taught, strict=True):
        assert one.relevance.shape == other.relevance.shape
        assert one.logit == pytest.approx(other.logit, rel=1e-4, abs=1e-5)
        assert one.ledger is None
        assert "approximates lrp" in one.notes[0]


@pytest.mark.exhaustive
def test_agreement_is_that_of_the_attributions(tmp_path: Path) -> None:
    plan = explained(text_plan, tmp_path, "separate", classes=1)
    trained = train(plan, StopAt())
    model = load_model(trained.model)
    held = prepare(replace(plan, fit=None, source=trained.model)).validation
    items = [one.item for one in held.entries]
    learned = te.explain(model, items, "learned", explainer=str(trained.explainer))
    taught = te.explain(model, items, "lrp")
    ranks, errors = [], []
    for one, other in zip(learned, taught, strict=True):
        own = own_positions(other.features, len(other.relevance))
        printed, wanted = one.relevance[own], other.relevance[own]
        if own.sum() >= 3:
            ranks.append(rank_similarity(printed, wanted))
            errors.append(np.linalg.norm(printed - wanted) / np.linalg.norm(wanted))
    assert trained.agreement.items == len(ranks) > 5
    assert trained.agreement.rank_correlation == pytest.approx(np.mean(ranks), abs=1e-3)
    assert trained.agreement.relative_error == pytest.approx(np.median(errors), rel=1e-3)


@pytest.mark.exhaustive
def test_an_explainer_learns(tmp_path: Path) -> None:
    """Its error on items held out falls to less than half of what silence has."""
    plan = explained(text_plan, tmp_path, "separate")
    plan = replace(plan, explainer_fit=SHORT.model_copy(update={"epochs": 40}))
    trained = train(plan, StopAt())
    assert trained.agreement.relative_error < 0.5
    assert trained.agreement.rank_correlation > 0.8


@pytest.mark.exhaustive
def test_a_model_that_stays_as_it_is(tmp_path: Path) -> None:
    plan = replace(explained(text_plan, tmp_path, "separate"), fit=None)
    before = (Path(plan.source) / "model.safetensors").read_bytes()
    trained = train(plan, StopAt())
    assert trained.model == plan.source
    assert trained.epochs == 0
    assert (Path(plan.source) / "model.safetensors").read_bytes() == before
    assert read_facts(trained.explainer).base == load_model(plan.source).ref.digest
    assert not (plan.output / "model").exists()
    assert {path.name for path in trained.curves} == {
        "explainer-curves.svg",
        "explainer-curves.png",
    }


def test_training_targets_are_the_relevance_of_the_method(tmp_path: Path) -> None:
    prepared = prepare(text_plan(tmp_path))
    model, rows = prepared.model, (0, 3, 4, 7)
    one = prepared.training.batch(rows)
    lesson = Teacher(MethodSpec(), model, classes=None).lesson(one.batch, rows)
    assert lesson.known.all()
    items = [encoded.item for encoded in one.batch.encoded]
    for attribution in te.explain(model, items, "lrp", target="all"):
        row = [item.id for item in items].index(attribution.item_id)
        printed = lesson.relevance[row, : len(attribution.relevance), attribution.class_index]
        np.testing.assert_allclose(printed, attribution.relevance, rtol=1e-4, atol=1e-6)
        assert not lesson.relevance[row, len(attribution.relevance) :].any()
        left = attribution.logit - attribution.relevance.sum()
        assert float(lesson.constants[row, attribution.class_index]) == pytest.approx(
            left, abs=1e-4
        )


def test_the_predicted_class_leads_and_others_are_drawn(tmp_path: Path) -> None:
    prepared = prepare(text_plan(tmp_path))
    model = prepared.model
    lessons = Lessons(
        Teacher(MethodSpec(), model, classes=2, seed=1), prepared.training.in_order(8)
    )
    rows = range(len(prepared.training))
    lesson = lessons.of(rows)
    batch = prepared.training.batch(rows).batch
    predicted = model.logits(batch).argmax(dim=1)
    assert lesson.known.sum(dim=1).tolist() == [2] * len(rows)
    assert lesson.known[torch.arange(len(rows)), predicted].all()
    assert lesson.known.any(dim=0).all(), "every class is taught somewhere"
    assert lesson.constants.isnan().equal(~lesson.known)
    scales, constants = lessons.scales_and_constants()
    assert torch.equal(constants.isnan(), lesson.constants.isnan())
    first = prepared.training.entries[0]
    words = torch.from_numpy(own_positions(first.encoded.features, first.length))
    taught = lesson.relevance[0, : first.length][:, lesson.known[0]]
    sides = [taught[side].square().mean().sqrt().item() for side in (words, ~words)]
    assert scales[0].tolist() == pytest.approx(sides, rel=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("teacher", "printed"),
    [
        (MethodSpec(name="rollout"), "rollout"),
        (MethodSpec(name="learned"), "learned"),
        (MethodSpec(name="lrp", params={"at": "words"}), "`at`"),
        (MethodSpec(name="lrp", params={"gama": 1}), "'gama'"),
    ],
)
def test_methods_that_cannot_teach_are_refused(
    tmp_path: Path, teacher: MethodSpec, printed: str
) -> None:
    with pytest.raises(ConfigurationError, match=printed):
        of = {"method": teacher.name, "params": teacher.params}
        train(explained(text_plan, tmp_path, "separate", **of), StopAt())


def test_invalid_requests_are_refused_with_their_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="0 epochs"):
        replace(explained(text_plan, tmp_path, "joint"), fit=None)
    with pytest.raises(ConfigurationError, match="held out"):
        train(replace(explained(text_plan, tmp_path, "separate"), share=0.0), StopAt())
    prepared = prepare(text_plan(tmp_path))
    with pytest.raises(ConfigurationError, match="cannot read layer 9"):
        fresh_explainer(
            prepared.model,
            prepared.training.batch([0]).batch,
            ExplainerSection(layers=(9,)),
            seed=0,
        )
