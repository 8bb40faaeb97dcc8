"""Table 2 of the TransExplain paper: what its presets say, and that training does it."""

import math
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from tiny_models import bert, vit, wordpiece
from tiny_trainings import bert_folder, vit_folder, write_pictures, write_texts

from transexplain.extras.learned.explainer_training import (
    JointObjective,
    Lessons,
    SeparateObjective,
    Teacher,
    fresh_explainer,
    joint_objective,
)
from transexplain.extras.learned.learned_explainer import Explainer
from transexplain.extras.training.classifiers import PreparedFit, objective_of, prepare
from transexplain.extras.training.optimisation import (
    ClassifierObjective,
    Stepper,
    precision_of,
    set_dropout,
)
from transexplain.extras.training.train_command import (
    PRESETS,
    TrainingSpec,
    plan_training,
    with_preset,
)
from transexplain.extras.training.training_plans import (
    TrainingPlan,
)
from transexplain.settings import Settings

#: the columns of Table 2: base rate, batch size, epochs of the base and of the XAI module, lambda
TABLE_2 = {
    "joint-text": (1e-4, 32, 25, None, 0.3),
    "joint-vision": (1e-4, 32, 30, None, 0.2),
    "separate-text": (2e-5, 16, 10, 15, None),
    "separate-vision": (2e-5, 16, 10, 20, None),
}


def plan_of(folder: Path, preset: str, **keys: Any) -> TrainingPlan:
    """The plan of a preset for a tiny model of five layers (texts) or of pictures."""
    document: dict[str, Any] = {"validation": {"share": 0.25}, "output": str(folder / "out")}
    if preset.endswith("text"):
        document["model"] = str(bert_folder(folder / "bert"))
        document["data"] = str(write_texts(folder / "texts.csv"))
    else:
        document["model"] = str(vit_folder(folder / "vit"))
        document["data"] = f"imagefolder:{write_pictures(folder / 'pictures')}"
        document["classes"] = ["dark", "light"]
    whole = with_preset({**document, **keys}, PRESETS[preset])
    spec = TrainingSpec.model_validate(whole)
    return plan_training(spec, Settings(snapshot_dir=folder / "snapshots"))


def objectives_of(plan: TrainingPlan) -> tuple[PreparedFit, ClassifierObjective | JointObjective]:
    prepared = prepare(plan)
    classifier = objective_of(plan, plan.fit, prepared)
    if plan.explainer.mode == "separate":
        return prepared, classifier
    return prepared, joint_objective(classifier, plan.explainer, prepared, seed=0)


@pytest.mark.parametrize("preset", TABLE_2)
def test_a_preset_is_its_column_of_table_2(preset: str, tmp_path: Path) -> None:
    rate, batch_size, epochs, xai_epochs, weight = TABLE_2[preset]
    plan = plan_of(tmp_path, preset)
    base, xai, found = plan.fit, plan.explainer, plan.optimisation
    assert (found.learning_rate, found.head_learning_rate) == (rate, None)
    assert (found.weight_decay, found.dropout, found.label_smoothing) == (0.01, 0.1, 0.0)
    fits = [base, *([plan.explainer_fit] if xai_epochs else [])]
    assert [one.epochs for one in fits] == [epochs, *([xai_epochs] if xai_epochs else [])]
    for one in fits:
        assert (one.batch_size, one.warmup, one.clip, one.patience) == (batch_size, 0.1, 1.0, 5)
        assert one.precision == "mixed"
    assert (base.schedule, base.patience_from) == ("whole", "start")
    assert (xai.learning_rate, xai.weight_decay, xai.dropout, xai.loss) == (1e-4, 0.01, 0.1, "mse")
    if weight is None:
        assert (xai.mode, plan.stages) == ("separate", None)
        return
    assert (xai.mode, xai.weight) == ("joint", weight)
    assert (plan.stages.interval_epochs, plan.stages.layers_per_interval) == (5, 3)


def test_every_preset_of_table_2_has_a_quick_form() -> None:
    assert set(PRESETS) == {*TABLE_2, *(f"quick-{name}" for name in TABLE_2)}
    quick = PRESETS["quick-joint-text"]
    assert quick["optimisation"]["learning_rate"] == 3e-5
    assert quick["stages"]["decay"] == 0.7


def factor(step: int, steps: int) -> float:
    """Warm-up over a tenth of the steps, then half a cosine."""
    rise = round(0.1 * steps)
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / (steps - rise)))


def test_joint_training_unfreezes_from_the_top_at_lower_rates(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "joint-text")
    prepared, objective = objectives_of(plan)
    per_epoch = prepared.training.steps(plan.fit.batch_size)
    steps = per_epoch * plan.fit.epochs
    stepper = Stepper(objective, plan.fit, steps)
    assert [(start // per_epoch, name) for start, name in stepper.unfrozen] == [
        (0, "head"), (5, "layers 2-4"), (10, "layers 0-1"), (15, "embeddings"),
    ]  # fmt: skip
    batch = prepared.training.batch([0, 1])
    trained: set[str] = set()
    weights = {name: one.detach().clone() for name, one in objective.module.named_parameters()}
    before = {"head": 0, "layers 2-4": 1, "layers 0-1": 2, "embeddings": 3, "explainer": 0}
    for epoch, new in ((0, ("classifier", "pooler")), (5, ("layer.2", "layer.3", "layer.4")),
                       (10, ("layer.0", "layer.1")), (15, ("embeddings",))):  # fmt: skip
        step = epoch * per_epoch
        for late in (step - 1, step):
            if late < 0:
                continue
            stepper.step(batch, late)
            moving = {n for n, p in objective.module.named_parameters() if p.requires_grad}
            if late == step:
                trained |= {
                    name
                    for name, _ in objective.module.named_parameters()
                    if name.startswith("explainer.") or any(part in name for part in new)
                }
            assert moving == trained
            after = objective.module.state_dict()
            frozen = [name for name in weights if name not in trained]
            assert all(torch.equal(weights[name], after[name]) for name in frozen), "to the bit"
        for group, slot in zip(stepper.groups, stepper.optimizer.param_groups, strict=True):
            stage = before[group.name.partition(",")[0]]
            base = 1e-4 * 0.5**stage  # the first layers too have a lower rate than the head
            open_ = group.starts <= step
            assert slot["lr"] == pytest.approx(base * factor(step, steps) if open_ else 0.0)
            matrices = all(one.dim() > 1 for one in group.parameters.values())
            assert slot["weight_decay"] == (0.01 if matrices else 0.0)


def test_separate_training_moves_the_whole_base_and_then_the_explainer_alone(
    tmp_path: Path,
) -> None:
    plan = plan_of(tmp_path, "separate-text")
    prepared, objective = objectives_of(plan)
    assert plan.fit is not None
    assert plan.explainer is not None
    stepper = Stepper(objective, plan.fit, 100)
    batch = prepared.training.batch(range(16))
    stepper.step(batch, 30)
    assert all(one.requires_grad for one in objective.module.parameters())
    assert {slot["lr"] for slot in stepper.optimizer.param_groups} == {2e-5 * factor(30, 100)}
    explainer = fresh_explainer(prepared.model, batch.batch, plan.explainer, seed=0)
    lessons = Lessons(Teacher(plan.explainer.teacher, prepared.model), [batch])
    alone = SeparateObjective(prepared.model, explainer, lessons, [], plan.explainer)
    frozen = {name: one.clone() for name, one in prepared.model.module.state_dict().items()}
    moved = {name: one.clone() for name, one in explainer.state_dict().items()}
    second = Stepper(alone, plan.explainer_fit, 100)
    second.step(batch, 30)
    assert {slot["lr"] for slot in second.optimizer.param_groups} == {1e-4 * factor(30, 100)}
    after = prepared.model.module.state_dict()
    assert all(torch.equal(frozen[name], after[name]) for name in frozen)
    assert any(not torch.equal(moved[name], one) for name, one in explainer.state_dict().items())


def test_passes_are_in_mixed_precision_and_weights_are_not(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "joint-text")
    prepared, objective = objectives_of(plan)
    assert plan.fit is not None
    stepper = Stepper(objective, plan.fit, 50)
    types: list[torch.dtype] = []
    handle = prepared.model.module.classifier.register_forward_hook(
        lambda _m, _a, output: types.append(output.dtype)
    )
    stepper.step(prepared.training.batch(range(8)), 0)
    handle.remove()
    assert torch.bfloat16 in types  # the teacher's own pass is in float32
    assert {one.dtype for one in objective.module.parameters()} == {torch.float32}
    assert precision_of("mixed", torch.device("cpu")) is torch.bfloat16
    assert precision_of("auto", torch.device("cpu")) is None


@pytest.mark.parametrize("kind", ["bert", "vit", "timm"])
def test_one_rate_of_dropout_for_the_whole_classifier(kind: str) -> None:
    inputs: dict[str, torch.Tensor] = {"pixel_values": torch.rand(4, 3, 24, 24)}
    dropped = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.3}
    if kind == "bert":
        module: Any = bert(**dropped)
        inputs = dict(wordpiece()(["a good film"] * 4, return_tensors="pt"))
    elif kind == "vit":
        module = vit(**dropped)
    else:
        small = {"img_size": 24, "embed_dim": 16, "num_heads": 2, "depth": 2, "num_classes": 3}
        module = timm.create_model(
            "vit_tiny_patch16_224", patch_size=8, attn_drop_rate=0.3, **small
        )
        torch.nn.init.normal_(module.head.weight)
        inputs = {"x": inputs["pixel_values"]}
    module.train()
    for rate in (0.3, 0.0, 0.1):  # at 0 nothing random is left, in the attention neither
        set_dropout(module, rate)
        with torch.no_grad():
            logits = [getattr(out, "logits", out) for out in (module(**inputs), module(**inputs))]
        assert torch.equal(*logits) == (rate == 0.0)
    rates = {part.p for part in module.modules() if isinstance(part, torch.nn.Dropout)}
    assert rates == {0.1}


def states_of(prepared: PreparedFit, explainer: Explainer, batch: Any) -> tuple[Any, ...]:
    from transexplain.models.hidden_states import read_states

    with torch.no_grad():
        found = read_states(prepared.model, batch, explainer.architecture.layers)
    return found.hidden, found.mask, found.own, found.logits


def test_the_joint_loss_is_cross_entropy_plus_lambda_times_plain_squared_error(
    tmp_path: Path,
) -> None:
    prepared, objective = objectives_of(plan_of(tmp_path, "joint-text"))
    assert isinstance(objective, JointObjective)
    objective.module.eval()  # no dropout, so that it can be computed again
    batch = prepared.training.batch(range(6))
    losses = {name: one.item() for name, one in objective.losses(batch, 0).items()}
    lesson = Teacher(objective.plan.teacher, prepared.model).lesson(batch.batch, batch.rows)
    states = states_of(prepared, objective.explainer, batch.batch)
    said = objective.explainer(*states).relevance.detach()
    errors = []
    for row, length in enumerate(batch.batch.lengths.tolist()):
        for index in torch.nonzero(lesson.known[row]).flatten().tolist():
            for position in range(length):
                taught = float(lesson.relevance[row, position, index])
                errors.append((float(said[row, position, index]) - taught) ** 2)
    assert losses["explanation"] == pytest.approx(sum(errors) / len(errors), rel=1e-4)
    logits = prepared.model.logits(batch.batch)
    entropy = torch.nn.functional.cross_entropy(logits, batch.labels)
    assert losses["classification"] == pytest.approx(entropy.item(), rel=1e-5)
    whole = losses["classification"] + 0.3 * losses["explanation"]
    assert losses["loss"] == pytest.approx(whole, rel=1e-6)


def test_a_training_has_one_device() -> None:
    with pytest.raises(ValueError, match="spread"):
        TrainingSpec.model_validate({"model": "m", "data": "d.csv", "device": "spread"})
