"""Relevance predicted by an explainer that learned from a relevance method.

The explainer, a small network, reads hidden states of the forward pass that the prediction needs
anyway, and gives the relevance of every position for every class at once. It approximates its
teacher: there is no ledger, and how near it comes was measured when it was trained and stands on
every attribution.
"""

from functools import partial

import torch

from transexplain.errors import ConfigurationError
from transexplain.methods.at_input_layer import as_array, is_double
from transexplain.methods.batch_explanation import (
    Array,
    BatchExplanation,
    CommonFields,
    Resolve,
    SeedRelevance,
    explain_targets,
)
from transexplain.methods.learned_facts import Facts, digest_of, read_facts
from transexplain.methods.learned_network import Explainer, load
from transexplain.methods.method_table import explainer_of
from transexplain.models.hidden_states import read_states
from transexplain.models.loaded_model import Batch, LoadedModel
from transexplain.models.variants import kept


def explain(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    explainer: str | None = None,
    sha256: str | None = None,
) -> BatchExplanation:
    """What an explainer predicts that its teacher would say: one forward, whatever the targets.

    Args:
        model, batch, resolve, method: of every method; see `batch_explanation`.
        explainer: path of the explainer's file.
        sha256: of the file's bytes, where they shall be these.

    Returns logits (B, C); per item and target, relevance (T,) or (rows, cols) in logits, without
    a ledger. Raises ConfigurationError for a missing or damaged file, other bytes than asked for,
    and an explainer of another model.
    """
    network, facts = _explainer_of(model, explainer, sha256)
    with torch.no_grad():
        states = read_states(model, batch, facts.architecture.layers)
        predicted = network(states.hidden, states.mask, states.own, states.logits).relevance
    mark = CommonFields(method=method, at=facts.at, unit="logits", double=is_double(states.logits))
    notes = [(_note(facts),)] * len(batch.encoded)

    def take(seed: Array, _last: bool) -> SeedRelevance:
        coefficients = torch.from_numpy(seed).to(predicted.device)
        positions = torch.einsum("btc,bc->bt", predicted.double(), coefficients)
        return SeedRelevance(positions.cpu().numpy(), notes=notes)

    return explain_targets(batch, as_array(states.logits), resolve, take, mark)


def _explainer_of(
    model: LoadedModel, path: str | None, sha256: str | None
) -> tuple[Explainer, Facts]:
    """The explainer at `path`, read once for a model, after every check that it fits."""
    where = explainer_of({"explainer": path})
    found: tuple[Explainer, Facts] = kept(
        model, "explainer", (where, sha256), partial(_read, model, where, sha256)
    )
    return found


def _read(model: LoadedModel, where: str, sha256: str | None) -> tuple[Explainer, Facts]:
    facts = read_facts(where)
    facts.refuse(digest=model.ref.digest, source=model.ref.source, where=where)
    if sha256 is not None and digest_of(where) != sha256:
        raise ConfigurationError(
            f"the explainer {where} is not the one that was asked for: its bytes have another "
            f"sha256 than {sha256[:12]}; put that file back, or plan the audit again"
        )
    first = next(model.module.parameters())
    return load(where, dtype=first.dtype, device=first.device)


def _note(facts: Facts) -> str:
    agreement = facts.agreement
    measured = (
        f": rank correlation {agreement.rank_correlation:.2f} over {agreement.items} items held out"
        if agreement
        else ", how well was not measured"
    )
    return f"learned, approximates {facts.teacher.name}{measured}"
