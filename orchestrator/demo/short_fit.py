"""The training of the demo's classifiers: a plain loop, which needs no optional package.

A few minutes of training need no checkpoints, no early end and no curves, which is what
`training_runs.train` has ignite for. Steps, seeds and order are the same, and so are the
weights, to the bit.
"""

from pathlib import Path

from transexplain.training.training_plans import TrainingPlan, seed_of


def train_classifier(plan: TrainingPlan) -> Path:
    """Train the classifier of `plan` for all its epochs; returns the directory of the model.

    The global random state is left as it was. Raises ConfigurationError for a model or data that
    does not fit the plan.
    """
    import torch

    from transexplain.training.classifiers import objective_of, prepare, save_model
    from transexplain.training.optimisation import Stepper

    assert plan.fit is not None
    prepared = prepare(plan)
    objective = objective_of(plan, plan.fit, prepared)
    examples, size, seed = prepared.training, plan.fit.batch_size, plan.fit.seed
    epoch_steps = examples.steps(size)
    steps = plan.fit.epochs * epoch_steps
    stepper = Stepper(objective, objective.parameter_groups(), plan.fit, steps)
    with torch.random.fork_rng(devices=[]):
        for step in range(steps):
            epoch, place = divmod(step, epoch_steps)
            if place == 0:
                order = examples.shuffled(size, seed=seed, epoch=epoch)
            torch.manual_seed(seed_of(seed, "step", step))
            stepper.step(examples.batch(order[place]), step)
    objective.module.eval()
    folder = plan.output / "model"
    save_model(prepared.model, plan.source, folder)
    return folder
