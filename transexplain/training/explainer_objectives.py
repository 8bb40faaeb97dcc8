"""What a fit minimises when an explainer is trained: alone, or together with its classifier."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn

from transexplain.learned.network import (
    Explainer,
    explanation_loss,
    item_scale,
)
from transexplain.models.base import LoadedModel
from transexplain.models.states import States, read_states
from transexplain.training.agreement import Taught, agreement_of
from transexplain.training.examples import ExampleBatch
from transexplain.training.objective import ClassifierObjective, ParameterGroup
from transexplain.training.plan import ExplainerPlan
from transexplain.training.teaching import Lesson, Lessons, Teacher

#: of the running scales of a joint training, for one step
MOMENTUM = 0.05


class SeparateObjective:
    """The explanation loss of a classifier that does not move (FastSHAP's setting, with LRP)."""

    monitor = "rank_correlation"
    higher_is_better = True

    def __init__(
        self,
        model: LoadedModel,
        explainer: Explainer,
        lessons: Lessons,
        held: Sequence[Taught],
        plan: ExplainerPlan,
    ) -> None:
        self.model, self.explainer, self.plan = model, explainer, plan
        self._lessons, self._held = lessons, held

    @property
    def module(self) -> nn.Module:
        """The explainer; the classifier is no part of it."""
        return self.explainer

    @property
    def identity(self) -> Mapping[str, Any]:
        """The plan of the explainer, and the classifier that it explains."""
        return {"explainer": asdict(self.plan), "base": self.model.ref.digest}

    def parameter_groups(self) -> list[ParameterGroup]:
        """The explainer's weights, from the first step."""
        return explainer_groups(self.explainer, self.plan)

    def losses(self, batch: ExampleBatch, step: int) -> dict[str, Tensor]:
        """The explanation loss of a batch."""
        del step
        with torch.no_grad():
            states = read_states(self.model, batch.batch, self.explainer.architecture.layers)
        lesson = self._lessons.of(batch.rows).to(states.logits.device)
        return {"loss": _explained(self.explainer, states, lesson)}

    def validate(self) -> dict[str, float]:
        """Rank correlation with the teacher, and the explanation loss, on examples held out."""
        return measured(self.model, self.explainer, self._held)

    def epoch_started(self, epoch: int) -> None:
        """Nothing depends on the epoch."""


class JointObjective:
    """Cross-entropy plus lambda times the explanation loss, with fresh targets at every step."""

    monitor = "loss"
    higher_is_better = False

    def __init__(
        self,
        classifier: ClassifierObjective,
        explainer: Explainer,
        teacher: Teacher,
        held: Sequence[ExampleBatch],
        plan: ExplainerPlan,
    ) -> None:
        self.classifier, self.explainer, self.plan = classifier, explainer, plan
        self._teacher, self._held = teacher, held
        self._both = nn.ModuleDict({"base": classifier.module, "explainer": explainer})

    @property
    def module(self) -> nn.Module:
        """The classifier as `base`, and the `explainer`."""
        return self._both

    @property
    def identity(self) -> Mapping[str, Any]:
        """The plan of the explainer, and what decides the classifier's own loss."""
        return {"explainer": asdict(self.plan), **self.classifier.identity}

    def parameter_groups(self) -> list[ParameterGroup]:
        """The classifier's groups in their stages, and the explainer from the first step."""
        base = [_under("base", group) for group in self.classifier.parameter_groups()]
        groups = explainer_groups(self.explainer, self.plan)
        return [*base, *(_under("explainer", group) for group in groups)]

    def losses(self, batch: ExampleBatch, step: int) -> dict[str, Tensor]:
        """`loss`, and its parts `classification` and `explanation`."""
        model = self.classifier.model
        seen = self.classifier.seen(batch)
        lesson = self._teacher.lesson(seen.batch, seen.rows)
        states = read_states(model, seen.batch, self.explainer.architecture.layers, training=True)
        scale = item_scale(lesson.relevance, lesson.known, states.mask, states.own)
        self.explainer.calibrate(scale, lesson.constants, 1.0 if step == 0 else MOMENTUM)
        explanation = _explained(self.explainer, states, lesson)
        classification = self.classifier.loss(states.logits, seen.labels)
        return {
            "loss": classification + self.plan.weight * explanation,
            "classification": classification,
            "explanation": explanation,
        }

    def validate(self) -> dict[str, float]:
        """The classifier's measures and the explainer's, on examples held out."""
        found = self.classifier.validate()
        if not found:
            return {}
        taught = [(one, self._teacher.lesson(one.batch, one.rows)) for one in self._held]
        of_explainer = measured(self.classifier.model, self.explainer, taught)
        explanation = of_explainer.pop("loss")
        return {
            **found,
            **of_explainer,
            "loss": found["loss"] + self.plan.weight * explanation,
            "classification": found["loss"],
            "explanation": explanation,
        }

    def epoch_started(self, epoch: int) -> None:
        """Targets are made at every step."""


def explainer_groups(explainer: Explainer, plan: ExplainerPlan) -> list[ParameterGroup]:
    """The weights of an explainer: matrices decay, biases and norms do not."""
    named = dict(explainer.named_parameters())
    matrices = {name: one for name, one in named.items() if one.dim() > 1}
    others = {name: one for name, one in named.items() if one.dim() <= 1}
    return [
        ParameterGroup(
            name="explainer",
            parameters=parameters,
            learning_rate=plan.learning_rate,
            weight_decay=decay,
        )
        for parameters, decay in ((matrices, plan.weight_decay), (others, 0.0))
    ]


@torch.no_grad()
def measured(
    model: LoadedModel, explainer: Explainer, taught: Sequence[Taught]
) -> dict[str, float]:
    """`rank_correlation`, `relative_error` and `loss` of an explainer; empty without examples."""
    was_training = explainer.training
    explainer.eval()
    try:
        agreement = agreement_of(model, explainer, taught)
        losses, items = 0.0, 0
        for batch, lesson in taught:
            states = read_states(model, batch.batch, explainer.architecture.layers)
            here = lesson.to(states.logits.device)
            losses += len(batch.rows) * float(_explained(explainer, states, here))
            items += len(batch.rows)
    finally:
        explainer.train(was_training)
    if agreement is None or not items:
        return {}
    return {
        "rank_correlation": agreement.rank_correlation,
        "relative_error": agreement.relative_error,
        "loss": losses / items,
    }


def _explained(explainer: Explainer, states: States, lesson: Lesson) -> Tensor:
    """The loss of what an explainer says, given the true scales."""
    scale = item_scale(lesson.relevance, lesson.known, states.mask, states.own)
    predicted = explainer(states.hidden, states.mask, states.own, states.logits, scale)
    return explanation_loss(
        explainer,
        predicted,
        relevance=lesson.relevance,
        known=lesson.known,
        scale=scale,
        constants=lesson.constants,
    )


def _under(name: str, group: ParameterGroup) -> ParameterGroup:
    return replace(
        group, parameters={f"{name}.{key}": one for key, one in group.parameters.items()}
    )
