"""The classifier of a training: its examples, its fit, and what is written of it."""

from dataclasses import dataclass, replace

from transexplain.errors import ConfigurationError
from transexplain.models.base import LoadedModel
from transexplain.models.load import load_model
from transexplain.training.examples import Examples, read_examples
from transexplain.training.heads import load_for_training
from transexplain.training.objective import ClassifierObjective
from transexplain.training.plan import FitPlan, TrainingPlan
from transexplain.training.stages import parameter_groups


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Prepared:
    """What a fit needs: the model in memory and its examples."""

    model: LoadedModel
    training: Examples
    validation: Examples

    def on(self, model: LoadedModel) -> "Prepared":
        """The same examples for another model with the same tokenizer or transform."""
        return Prepared(
            model=model,
            training=replace(self.training, model=model),
            validation=replace(self.validation, model=model),
        )


def prepare(plan: TrainingPlan) -> Prepared:
    """Load the model, read the examples and part them.

    Raises ConfigurationError for a model or data that does not fit the plan.
    """
    if plan.fit is None:
        model = load_model(plan.source, device=plan.device)
    else:
        model = load_for_training(plan.source, plan.classes, device=plan.device, seed=plan.seed)
    examples = read_examples(model, plan.dataset, labels=plan.labels, max_length=plan.max_length)
    if plan.validation is None:
        training, validation = examples.split(plan.share, plan.seed)
    else:
        training = examples
        validation = read_examples(
            model, plan.validation, labels=plan.labels, max_length=plan.max_length
        )
    if not validation and plan.fit is not None and plan.fit.patience is not None:
        raise ConfigurationError(
            "patience needs validation examples; give validation.source or validation.share, "
            "or set patience to null"
        )
    if not validation and plan.explainer is not None:
        raise ConfigurationError(
            "an explainer needs examples held out, to measure how near it comes to its teacher; "
            "give validation.source or validation.share"
        )
    return Prepared(model=model, training=training, validation=validation)


def objective_of(plan: TrainingPlan, fit: FitPlan, prepared: Prepared) -> ClassifierObjective:
    """What the classifier of a plan minimises, and when which layer begins."""
    groups = parameter_groups(
        prepared.model,
        prepared.training.batch([0]).batch,
        stages=plan.stages,
        optimisation=plan.optimisation,
        epoch_steps=prepared.training.steps(fit.batch_size),
    )
    return ClassifierObjective(
        prepared.model,
        groups,
        prepared.validation,
        optimisation=plan.optimisation,
        batch_size=fit.batch_size,
    )
