"""By what items are picked to be looked at: how strong an explanation is, how wrong an answer.

Both numbers are columns of their own with an index, so that nobody reads a whole run to find the
few largest. They are taken from what is stored, as a reader of the rows would take them.
"""

from collections.abc import Mapping
from dataclasses import replace

from sqlalchemy import Connection, select

from transexplain.store.codec import EncodedRelevance, decode
from transexplain.store.schema import run
from transexplain.types.items import Attribution, ItemOutcome
from transexplain.types.words import size_of


def stored_size(attribution: Attribution, encoded: EncodedRelevance, text: str | None) -> float:
    """The size of `attribution` as it will be read back: from its payload and its item's text."""
    relevance = decode(encoded).reshape(attribution.relevance.shape)
    return size_of(replace(attribution, relevance=relevance, text=text))


def margin_of(outcome: ItemOutcome, places: Mapping[str, int]) -> float | None:
    """By how much the predicted class beats the labelled one, in logits; None: it is not wrong.

    `places` are the indices of the classes' logits; a class without one has no margin, which is 0.
    """
    if outcome.label is None or outcome.label == outcome.predicted:
        return None
    label, predicted = places.get(outcome.label), places.get(outcome.predicted)
    if label is None or predicted is None or not outcome.logits:
        return 0.0
    return outcome.logits[predicted] - outcome.logits[label]


def places_of(connection: Connection, run_id: str) -> dict[str, int]:
    """The index of the logit of every class of a run's model, by its name; no run: none."""
    plan = connection.execute(select(run.c.plan).where(run.c.id == run_id)).scalar_one_or_none()
    names = plan["model"]["classes"] if plan else ()
    return {name: index for index, name in enumerate(names)}
