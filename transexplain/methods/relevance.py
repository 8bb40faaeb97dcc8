"""Layer-wise relevance propagation and gradient x input: every composite of the engine."""

import dataclasses
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from transexplain.engine.composites import (
    ChefersRules,
    Composite,
    GammaForm,
    InputRule,
    composite,
    parsed_input_rule,
    parsed_overrides,
    tuned,
)
from transexplain.engine.mode import RelevanceMode
from transexplain.engine.propagate import explained_sums
from transexplain.engine.replay import Passes, Step
from transexplain.errors import ConfigurationError
from transexplain.methods.at_input_layer import features_at, in_bucket, steps_of, sum_hidden
from transexplain.methods.batch_explanation import (
    Array,
    BatchExplanation,
    CommonFields,
    Features,
    Resolve,
    SeedRelevance,
    explain_targets,
    parts,
)
from transexplain.models.loaded_model import Batch, LoadedModel
from transexplain.types.items import PatchGrid

InputLayer = Literal["encoder", "words", "pixels", "nodes"]


def explain(  # noqa: PLR0913 - each parameter of a method is a keyword
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    at: InputLayer | None = None,
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
        model, batch, resolve, method: B items, and the name of a composite.
        at: the input layer; default: the input of the first block, where there is one.
        epsilon, gamma, gamma_form, alpha, beta: of linear operators; see `LinearRule`.
        input_rule: `zb`, `w2`, `flat` or `{rule: zb, low: ..., high: ...}`; see `InputRule`.
        overrides: (pattern, rule) pairs, matched against the names of weights in order.

    Returns logits (B, C); per item and target, relevance (T,) or (rows, cols) with its ledger.
    Raises ConfigurationError for parameters that contradict each other or fit no operator.
    """
    rules = lrp_rules(
        method,
        epsilon=epsilon,
        gamma=gamma,
        gamma_form=gamma_form,
        alpha=alpha,
        beta=beta,
        input_rule=input_rule,
        overrides=overrides,
    )
    return explain_by(model, batch, resolve, rules, at=at)


def lrp_rules(
    method: str,
    *,
    input_rule: str | Mapping[str, Any] | None = None,
    overrides: Iterable[Any] = (),
    **linear: Any,
) -> Composite:
    """The composite `method` with its parameters; raises ConfigurationError."""
    return tuned(
        composite(method),
        linear=linear,
        input_rule=None if input_rule is None else parsed_input_rule(input_rule),
        overrides=parsed_overrides(overrides),
    )


def explain_gradient(
    model: LoadedModel, batch: Batch, resolve: Resolve, *, method: str, at: InputLayer | None = None
) -> BatchExplanation:
    """Gradient x input, with what every operator makes or loses in the ledger; see `explain`."""
    return explain_by(model, batch, resolve, composite(method), at=at)


def explain_chefer(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    at: InputLayer | None = None,
    variant: Literal["paper", "authors"] = "paper",
    baseline: bool = False,
) -> BatchExplanation:
    """The rules of Chefer et al. 2021 in relevance form, from a seed of 1; see `explain`.

    Args:
        model: any loaded model.
        batch: B items.
        resolve: (B, C) logits -> targets per item.
        method: name of the composite.
        at: the input layer; at `pixels` the operator that reads it has the z^B rule.
        variant: `authors` adds their 1e-9 to every denominator, whatever its sign.
        baseline: the LRP that the authors compare with: sums are not rescaled.

    Returns:
        Relevance in `unit_relevance`: the positions and what the rules lost sum to the seed.
    """
    input_layer = at or model.default_at
    rules = chefer_rules(method, input_layer, variant=variant, baseline=baseline)
    return explain_by(model, batch, resolve, rules, at=input_layer)


def explain_full(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    at: InputLayer | None = None,
    variant: Literal["paper", "authors"] = "paper",
) -> BatchExplanation:
    """LRP down to the input layer: z+, sums shared by value and not rescaled, from a seed of 1.

    Chefer et al. 2021a, section 4 (the baseline "LRP"), with z^B at pixels; `chefer-lrp` is the
    same with rescaled sums, as their own method propagates. Of the authors' code position 0 is
    left out, which here stays, flagged as special. Arguments, errors and unit as `explain_chefer`.
    """
    input_layer = at or model.default_at
    rules = chefer_rules("chefer-lrp", input_layer, variant=variant, baseline=True)
    return explain_by(model, batch, resolve, rules, at=input_layer, method=method)


def chefer_rules(
    method: str, input_layer: str, *, variant: str = "paper", baseline: bool = False
) -> Composite:
    """The composite `method` in one of Chefer's variants; raises ConfigurationError."""
    if variant not in ("paper", "authors"):
        raise ConfigurationError(f"variant is 'paper' or 'authors', not {variant!r}")
    return dataclasses.replace(
        composite(method),
        chefer=ChefersRules(normalised=not baseline, authors=variant == "authors"),
        input_rule=InputRule(name="zb", required=False) if input_layer == "pixels" else None,
    )


def rules_of(method: str, input_layer: str, params: Mapping[str, Any]) -> Composite:
    """The composite that a method propagates by, at one input layer.

    Raises ConfigurationError for a method that propagates nothing, and for parameters that
    contradict each other.
    """
    if composite(method).relevance_form:
        return chefer_rules(method, input_layer, **params)
    return lrp_rules(method, **params)


def explain_by(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    rules: Composite,
    *,
    at: str | None,
    method: str | None = None,
) -> BatchExplanation:
    """Explain every item of a batch by a composite: one forward, one backward per target.

    `method` is the name to record, where it is not the composite's.
    """
    input_layer = at or model.default_at
    places = [features_at(input_layer, encoded) for encoded in batch.encoded]
    batch, rows = in_bucket(model, batch)
    step = dataclasses.replace(step_of(model, batch, rules, input_layer, places[0]), rows=rows)
    with steps_of(model).passes(step) as passes:
        logits = passes.logits.detach().double().cpu().numpy()
        mark = CommonFields(
            method=method or rules.name,
            at=input_layer,
            unit=rules.unit,
            double=passes.logits.dtype == torch.float64,
            notes=model.notes_at(input_layer),
        )
        take = partial(_one_pass, passes, rules, places)
        return explain_targets(batch, logits, resolve, take, mark)


def step_of(
    model: LoadedModel, batch: Batch, rules: Composite, input_layer: str, features: Features
) -> Step:
    """Return what an explanation of this batch computes; `features` are one item's."""

    def forward(inputs: Mapping[str, Tensor], taps: RelevanceMode) -> Tensor:
        more = next(iter(inputs.values())).shape[0] - len(batch.encoded)  # rows that fill it up
        given = Batch(
            encoded=batch.encoded + batch.encoded[:1] * more,
            inputs=dict(inputs),
            lengths=torch.cat([batch.lengths, batch.lengths[:1].expand(more)]),
        )
        return model.run(given, at=input_layer, taps=taps)

    grid = (features.rows, features.cols) if isinstance(features, PatchGrid) else None
    return Step(
        forward=forward,
        composite=rules,
        inputs=batch.inputs,
        shape=model.logits_shape(batch),
        module=model.module,
        summed=partial(sum_hidden, features=features),
        at=(input_layer, grid),
    )


def _one_pass(
    passes: Passes, rules: Composite, places: list[Features], seed: Array, last: bool
) -> SeedRelevance:
    positions = passes.relevance(torch.from_numpy(seed), last=last).cpu().numpy()
    inputs, special = parts(positions.shape[1], places)
    explained = explained_sums(rules, passes.logits, seed)
    ledgers = passes.book.close(positions * inputs, positions * special, explained)
    notes = [_notes(passes, item) for item in range(len(places))]
    return SeedRelevance(positions, ledgers=ledgers, notes=notes, features=places)


def _notes(passes: Passes, item: int) -> tuple[str, ...]:
    """Return what a reader of one item's attribution has to know besides its numbers."""
    notes = []
    if passes.cut_softmax:
        notes.append("the model ends in a softmax: its input is explained")
    amplification = passes.book.amplification
    if amplification is not None:
        notes.append(f"the gamma rule amplified relevance up to {amplification[item]:.3g}-fold")
    return tuple(notes)
