"""Layer-wise relevance propagation and gradient x input: every composite of the engine."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transexplain.engine.composites import ChefersRules, Composite, composite, tuned
from transexplain.engine.linear_rules import (
    GammaForm,
    InputRule,
    parsed_input_rule,
    parsed_overrides,
)
from transexplain.engine.propagate import Propagation, propagate
from transexplain.errors import ConfigurationError, EngineError
from transexplain.methods.base import BatchExplanation, Resolve
from transexplain.models.base import Batch, Encoded, LoadedModel
from transexplain.types import Attribution, Ledger, PatchGrid, ResolvedTarget, Token

Array = NDArray[np.float64]
Features = tuple[Token, ...] | PatchGrid


Leaf = Literal["encoder", "words", "pixels"]


def explain(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    at: Leaf | None = None,
    epsilon: float | None = None,
    gamma: float | None = None,
    gamma_form: GammaForm | None = None,
    alpha: float | None = None,
    beta: float | None = None,
    input_rule: str | Mapping[str, Any] | None = None,
    overrides: Iterable[Any] = (),
) -> BatchExplanation:
    """Layer-wise relevance propagation: one forward, one backward per target.

    Args:
        model: any loaded model.
        batch: B items.
        resolve: (B, C) logits -> targets per item.
        method: name of the composite.
        at: the leaf; default: the input of the first block where the model has blocks.
        epsilon: of linear operators, signed.
        gamma: of linear operators.
        gamma_form: `generalised`, or `transexplain` (needs epsilon; its denominator can cross 0).
        alpha: weight of positive contributions of linear operators; 1 is z+.
        beta: weight of negative ones, alpha - 1.
        input_rule: `zb`, `w2` or `flat` (or `{rule: zb, low: ..., high: ...}`) for the operator
            that reads the leaf.
        overrides: (pattern, rule) pairs, matched against the names of weights in order.

    Returns:
        Logits (B, C) and, per item and target, relevance (T,) or (rows, cols) in logits with its
        ledger.

    Raises:
        ConfigurationError: parameters that contradict each other or fit no operator.
        EngineError: an operator without a rule.
    """
    rules = tuned(
        composite(method),
        linear={
            "epsilon": epsilon,
            "gamma": gamma,
            "gamma_form": gamma_form,
            "alpha": alpha,
            "beta": beta,
        },
        input_rule=None if input_rule is None else parsed_input_rule(input_rule),
        overrides=parsed_overrides(overrides),
    )
    return explain_by(model, batch, resolve, rules, at=at)


def explain_gradient(
    model: LoadedModel, batch: Batch, resolve: Resolve, *, method: str, at: Leaf | None = None
) -> BatchExplanation:
    """Gradient x input, with what every operator makes or loses in the ledger; see `explain`."""
    return explain_by(model, batch, resolve, composite(method), at=at)


def explain_chefer(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    at: Leaf | None = None,
    variant: Literal["paper", "authors"] = "paper",
    baseline: bool = False,
) -> BatchExplanation:
    """The rules of Chefer et al. 2021 in relevance form, from a seed of 1; see `explain`.

    Args:
        model: any loaded model.
        batch: B items.
        resolve: (B, C) logits -> targets per item.
        method: name of the composite.
        at: the leaf; at `pixels` the operator that reads it has the z^B rule.
        variant: `authors` adds their 1e-9 to every denominator, whatever its sign.
        baseline: the LRP that the authors compare with: sums are not rescaled.

    Returns:
        Relevance in `unit_relevance`: the positions and what the rules lost sum to the seed.
    """
    if variant not in ("paper", "authors"):
        raise ConfigurationError(f"variant is 'paper' or 'authors', not {variant!r}")
    leaf = at or model.default_at
    rules = dataclasses.replace(
        composite(method),
        chefer=ChefersRules(normalised=not baseline, authors=variant == "authors"),
        input_rule=InputRule(name="zb") if leaf == "pixels" else None,
    )
    return explain_by(model, batch, resolve, rules, at=leaf)


def explain_by(
    model: LoadedModel, batch: Batch, resolve: Resolve, rules: Composite, *, at: str | None
) -> BatchExplanation:
    """Explain every item of a batch by a composite: one forward, one backward per target."""
    leaf = at or model.default_at
    items = len(batch.encoded)
    passes = propagate(
        lambda taps: model.run(batch, at=leaf, taps=taps), rules, items, module=model.module
    )
    logits = passes.logits.detach().double().cpu().numpy()
    targets = resolve(logits)
    rounds = max((len(of_item) for of_item in targets), default=0)
    explained: list[list[Attribution]] = [[] for _ in range(items)]
    places = [_features_at(leaf, encoded) for encoded in batch.encoded]
    for turn in range(rounds):
        asked = [of_item[turn] if turn < len(of_item) else None for of_item in targets]
        found = _one_pass(passes, places, asked, logits, last=turn == rounds - 1)
        for index, target in enumerate(asked):
            if target is not None:
                named = _record(batch.encoded[index], places[index], target, found[index])
                named = dataclasses.replace(named, method=rules.name, at=leaf, unit=rules.unit)
                explained[index].append(named)
    return BatchExplanation(logits, explained)


def _features_at(leaf: str, encoded: Encoded) -> Features:
    """What the positions of the leaf are: the item's own, or single pixels."""
    features = encoded.features
    if leaf == "pixels" and isinstance(features, PatchGrid):
        return dataclasses.replace(features, rows=features.height, cols=features.width, prefix=0)
    return features


@dataclasses.dataclass(frozen=True, slots=True)
class _Measured:
    """One item's share of a backward pass."""

    positions: Array  #: (T,) with special positions
    logit: float
    ledger: Ledger
    dtype: type[np.floating[Any]]


def _one_pass(
    passes: Propagation,
    places: list[Features],
    asked: list[ResolvedTarget | None],
    logits: Array,
    *,
    last: bool,
) -> list[_Measured]:
    seed = np.zeros(logits.shape)
    for index, target in enumerate(asked):
        for class_index, coefficient in target.coefficients if target else ():
            seed[index, class_index] = coefficient
    product = passes.relevance(torch.from_numpy(seed), last=last)
    logit_of_item = (seed * logits).sum(axis=1)
    positions = _sum_hidden(product, places[0]).cpu().numpy()
    inputs, special = _parts(positions.shape[1], places)
    ledgers = passes.book.close(positions * inputs, positions * special, passes.explained(seed))
    dtype = np.float64 if passes.logits.dtype == torch.float64 else np.float32
    return [
        _Measured(positions[i], float(logit_of_item[i]), ledgers[i], dtype)
        for i in range(len(places))
    ]


def _parts(width: int, places: list[Features]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which of (B, `width`) positions are inputs, and which special.

    Padding is neither: what a model lets leak there shows in the ledger's gap.
    """
    inputs, special = (np.zeros((len(places), width), dtype=bool) for _ in range(2))
    for row, features in enumerate(places):
        if isinstance(features, PatchGrid):
            inputs[row, features.prefix : features.prefix + features.rows * features.cols] = True
            special[row] = ~inputs[row]
        else:
            special[row, : len(features)] = [token.special for token in features]
            inputs[row, : len(features)] = ~special[row, : len(features)]
    return inputs, special


def _sum_hidden(product: Tensor, features: Features) -> Tensor:
    """(B, T, D) -> (B, T); maps (B, D, rows, cols) and (B, rows, cols, D) -> (B, rows * cols)."""
    if product.dim() == 3:
        return product.sum(dim=-1)
    if product.dim() == 4 and isinstance(features, PatchGrid):
        channels_last = tuple(product.shape[1:3]) == (features.rows, features.cols)
        return product.sum(dim=-1 if channels_last else 1).flatten(1)
    raise EngineError(
        f"the leaf has shape {tuple(product.shape)}; expected (B, T, D) or a map of patches. "
        "Choose another `at`"
    )


def _record(
    encoded: Encoded, features: Features, target: ResolvedTarget, measured: _Measured
) -> Attribution:
    relevance, prefix = measured.positions, ()
    if isinstance(features, PatchGrid):
        cells = features.rows * features.cols
        prefix = tuple(relevance[: features.prefix].tolist())
        relevance = relevance[features.prefix : features.prefix + cells]
        relevance = relevance.reshape(features.rows, features.cols)
    else:
        relevance = relevance[: len(features)]
    content = encoded.item.content
    return Attribution(
        item_id=encoded.item.id,
        method="",
        target=target.spec,
        rank=target.rank,
        class_index=target.class_index,
        class_name=target.class_name,
        logit=measured.logit,
        relevance=relevance.astype(measured.dtype),
        unit="logits",
        at="",
        features=features,
        ledger=measured.ledger,
        text=content if isinstance(content, str) else None,
        prefix_relevance=prefix,
    )
