"""LRP down to the input layer, the baseline "LRP" of Chefer et al. 2021a."""

from transexplain.methods.batch_explanation import BatchExplanation, Resolve
from transexplain.methods.global_maps import Variant
from transexplain.methods.relevance import InputLayer, chefer_rules, explain_by
from transexplain.models.loaded_model import Batch, LoadedModel


def explain(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    at: InputLayer | None = None,
    variant: Variant = "paper",
) -> BatchExplanation:
    """z+ everywhere, sums shared by value and not rescaled, z^B at pixels, from a seed of 1.

    Chefer et al. 2021a, section 4 (the baseline "LRP"); `chefer-lrp` is the same with rescaled
    sums, as their own method propagates.

    Args:
        model, batch, resolve, method: of every method; see `batch_explanation`.
        at: the input layer; their pictures are explained at `pixels`.
        variant: `authors` adds their 1e-9 to every denominator, whatever its sign. They also
            leave position 0 out, which here stays, flagged as special.

    Returns:
        Relevance (T,) or (rows, cols) in `unit_relevance`: with what the rules lost it sums to 1.

    Raises:
        EngineError: an operator without a rule.
    """
    input_layer = at or model.default_at
    rules = chefer_rules("chefer-lrp", input_layer, variant=variant, baseline=True)
    return explain_by(model, batch, resolve, rules, at=input_layer, method=method)
