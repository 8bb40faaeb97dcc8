"""Parameter randomisation: whether an explanation depends on the learned weights."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from transexplain.evaluating.metrics.metric_table import Array, Bench, Case, Scored, unmeasured
from transexplain.rank_correlation import is_constant, rank_similarity

if TYPE_CHECKING:
    from torch import Tensor

    from transexplain.models.loaded_model import LoadedModel


def randomisation(
    bench: Bench, cases: Sequence[Case], *, absolute: bool = False, seed: int = 0
) -> list[Scored]:
    """Rank correlation with the explanations of the model as it is randomised from the top down.

    The cascading randomisation of Adebayo et al. 2018, section 3: the classifier is randomised
    first, then the last layer too, and so on to the embeddings; at each step the same class of the
    same item is explained. The curve holds the correlation at every step, the value is its mean; 1:
    the explanation ignores what was learned. Where a randomised model gets a constant explanation
    the correlation is 0. Batch statistics and other buffers stay.

    Args:
        bench: explains again.
        cases: explanations of the audited model.
        absolute: rank by |relevance|.
        seed: of the drawing; it is the same for every item and method.
    """
    from transexplain.models.variants import kept

    before = [_ranked(case, absolute) for case in cases]
    unordered = [_without_order(values) for values in before]
    rows = [row for row, scored in enumerate(unordered) if scored is None]
    some = [cases[row] for row in rows]
    models: list[LoadedModel] = []
    if some:  # they share what they have in common: together they hold one further set of weights
        models += kept(bench.model, "randomisation", seed, lambda: _steps(bench.model, seed))
    steps = [bench.again(some, model=model) for model in models]
    for column, row in enumerate(rows):
        after = [
            score
            if isinstance(score, str)
            else _ranked(replace(cases[row], attribution=score), absolute)
            for score in (step[column] for step in steps)
        ]
        unordered[row] = _scored(before[row], after)
    return [scored for scored in unordered if scored is not None]


def _ranked(case: Case, absolute: bool) -> Array:
    return np.abs(case.relevance) if absolute else case.relevance


def _without_order(values: Array) -> Scored | None:
    if values.size < 2:
        return unmeasured("one position: there is no order")
    if is_constant(values):
        return unmeasured("the explanation is constant: there is no order")
    return None


def _scored(before: Array, after: Sequence[Array | str]) -> Scored:
    points = []
    for step, values in enumerate(after, 1):
        if isinstance(values, str):
            return unmeasured(f"step {step} of {len(after)} of the randomisation: {values}")
        points.append(rank_similarity(before, values))
    if not points:
        return unmeasured("the model has no parameters to randomise")
    return Scored(value=float(np.mean(points)), curve=tuple(points))


def _steps(model: "LoadedModel", seed: int) -> "list[LoadedModel]":
    from transexplain.models.variants import parameters_from_the_top, variant

    parameters = dict(model.module.named_parameters())
    replaced: dict[str, Tensor] = {}
    made = []
    for names in parameters_from_the_top(model):
        drawn = {n: redrawn(parameters[n], n, seed) for n in names}
        replaced.update(drawn)
        made.append(variant(model, replaced))
    return made


def randomised_model(model: "LoadedModel", seed: int = 0, draw: int = 0) -> "LoadedModel":
    """The model with all its parameters randomised, made once for a model; see `redrawn`.

    It is the last step of the cascade. The audited model's own weights stay as they are; the
    further set of each `draw` is held as long as the model. Raises EngineError, RuntimeError or
    TypeError where the module cannot be copied.
    """
    from transexplain.models.variants import kept, variant

    def made() -> "LoadedModel":
        parameters = model.module.named_parameters()
        return variant(
            model,
            {name: redrawn(parameter, f"{name}{again}", seed) for name, parameter in parameters},
        )

    again = f" {draw}" if draw else ""
    randomised: LoadedModel = kept(model, f"randomised{again}", seed, made)
    return randomised


def redrawn(parameter: "Tensor", name: str, seed: int) -> "Tensor":
    """Random values for a parameter, of its shape, type and device; its name and `seed` decide.

    Matrices and larger tensors are drawn from a normal of their own mean and standard deviation.
    Vectors (biases, weights of norms and layer scales) are permuted: a few large entries make
    their deviation, and a normal of it would turn scales negative and kill the signal. A tensor of
    one value stays as it is under both: it is what an initialiser wrote, or distinguishes no
    position, word or feature. Drawn on the CPU, so that every device has the same numbers.
    """
    import torch

    from transexplain.methods.batch_explanation import generator_of

    old = parameter.detach().cpu()
    flat = old.reshape(-1)
    if not old.is_floating_point() or bool((flat == flat[:1]).all()):
        return parameter.detach()
    generator = generator_of(seed, name, "randomisation")
    if old.dim() < 2:
        new = flat[torch.randperm(flat.numel(), generator=generator)].reshape(old.shape)
    else:
        exact = old.float()
        mean, spread = exact.mean(), exact.std(correction=0)
        new = torch.randn(old.shape, generator=generator).mul_(spread).add_(mean)
    return new.to(parameter.device, parameter.dtype)
