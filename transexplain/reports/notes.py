"""Methods and assumptions, in short, for the foot of a report."""

from collections.abc import Iterator

from transexplain.analysis.groups.intervals import BOOTSTRAP_FROM, MIN_ENTITIES
from transexplain.methods import facts_of
from transexplain.reports.approximating import nearness, sampled
from transexplain.reports.gallery import SHARE
from transexplain.reports.report_records import ClassSensitivity
from transexplain.types.findings import Correction
from transexplain.types.plans import AmbiguityPolicy, AuditRun, PrivacyPlan, StoreText
from transexplain.types.scores import Approximation

_KEPT: dict[StoreText, str] = {
    "full": "",
    "hashed": (
        "The texts are not stored (store_text: hashed): each word stands as 12 digits of a keyed "
        "hash, the same for the same word. Spellings of mentions, metadata and entities that the "
        "data name are hashed, too; messages of errors are not kept. Words as frequent as a group "
        "are not reported, because the words of a group cannot be distinguished from others."
    ),
    "none": (
        "The texts are not stored (store_text: none): a block stands for each word. There are no "
        "lists of words, and spellings of mentions, metadata and messages of errors are not kept."
    ),
}


def privacy_notes(asked: PrivacyPlan | None) -> Iterator[str]:
    """What was kept of the texts, and why the report shows no more."""
    if asked is None:
        return
    if asked.store_text != "full":
        yield (
            f"{_KEPT[asked.store_text]} All numbers were computed from the texts themselves before "
            "anything was stored. Names of the lexicon's entities stay, and item ids."
        )
    elif asked.redact:
        yield (
            f"Texts were blanked (\N{FULL BLOCK}) where {asked.redact} said so, by whole words, "
            "before they were stored; blanked words are in no list of words. All numbers besides "
            "were computed from the texts themselves."
        )


_METHODS = {
    "gradient-x-input": "the gradient of the logit times the input",
    "lrp-ah": "layer-wise relevance propagation with attention weights held constant",
    "lrp-ln": "layer-wise relevance propagation with the scale of normalisation held constant",
    "lrp-ah-ln": "layer-wise relevance propagation with attention weights and the scale of "
    "normalisation held constant (Ali et al., 2022)",
    "lrp": "layer-wise relevance propagation with attention weights and the scale of "
    "normalisation held constant and activations passed through in proportion, so that relevance "
    "is neither made nor lost",
}
_INPUT_LAYERS = {
    "inputs": "the input positions",
    "attention": "the positions of the attention maps",
    "encoder": "the input of the first layer",
    "words": "the word embeddings",
    "pixels": "the pixels, summed over colours",
}
_READING = (
    "Relevance says what the model's arithmetic used for these items. It does not say what the "
    "model would have answered had the text or picture been different."
)

_PERTURBED = (
    "Relevance says how the model's answer changed when a token or patch was absent. What stood in "
    "its place is in the notes of every explanation, and the numbers depend on it."
)


def notes(
    run: AuditRun, layers: tuple[str, ...], unit: str, sensitivity: ClassSensitivity | None
) -> tuple[str, ...]:
    """One paragraph each on what the numbers are and what they rest on."""
    return (
        *_relevance(run, layers, unit),
        *_sensitivity(sensitivity),
        *_pooling(run),
        *privacy_notes(run.plan.privacy),
        *_groups(run),
        *_reading(run, layers, unit),
    )


def _reading(run: AuditRun, layers: tuple[str, ...], unit: str) -> Iterator[str]:
    if run.plan.task != "imported":  # else who made them knows what they say
        yield _PERTURBED if "inputs" in layers and unit == "logits" else _READING


def _relevance(run: AuditRun, layers: tuple[str, ...], unit: str) -> Iterator[str]:
    name = run.plan.method.name
    if run.plan.task == "imported":
        yield (
            f"Attributions were made elsewhere and imported under the name {name}, in {unit} as "
            "whoever imported them said. Positive is read as raising the explained class, negative "
            "as lowering it. No model was loaded: nothing here was computed again, and swaps, "
            "faithfulness, class sensitivity and the ledger are not measured."
        )
        yield from _stored(run)
        return
    meaning = f": {_METHODS[name]}" if name in _METHODS else f" ({facts_of(name).source})"
    where = " and ".join(_INPUT_LAYERS.get(layer, layer) for layer in layers) or "not measured yet"
    approximation = run.plan.approximates
    how = f"predicted, not computed, with {name}" if approximation else f"computed with {name}"
    yield (
        f"Relevance is {how}{meaning}. It is measured at {where}, in {unit}, and "
        "signed: positive raises the explained class, negative lowers it."
    )
    if approximation is not None:
        yield from _predicted(run, approximation)
    yield from _stored(run)


def _predicted(run: AuditRun, approximation: Approximation) -> Iterator[str]:
    teacher = approximation.teacher
    meaning = f": {_METHODS[teacher]}" if teacher in _METHODS else ""
    trained = (
        "together with the model" if approximation.mode == "joint" else "beside the finished model"
    )
    here = (
        "How near it comes on items of this audit is in the section on the cheap method."
        if run.plan.exact
        else f"How near it comes on items of this audit was not measured; "
        f"{sampled(approximation)} would tell."
    )
    yield (
        f"The explainer is a small network, trained {trained}, that reads the model's hidden "
        f"states in the pass that predicts. It approximates {teacher}{meaning}. It came as near as "
        f"this: {nearness(approximation)}. There is no ledger: nothing says where a "
        f"logit went, or whether an explanation adds up to it. {here}"
    )


def _stored(run: AuditRun) -> Iterator[str]:
    if run.plan.payload == "float16":
        yield (
            "Relevance is stored in half precision with a scale for each explanation: single "
            "values are rounded by at most 1 in 2,000 of themselves. Totals, tables and ledgers "
            "were computed before rounding."
        )


def _sensitivity(found: ClassSensitivity | None) -> Iterator[str]:
    if found is not None:
        yield (
            f"Class sensitivity is {found.mean:.2f}, measured on the first items of every shard "
            f"({found.items:,}): half of one minus the rank correlation of the maps for an item's "
            "two likeliest classes. 0 is the same map whatever class is asked, 0.5 unrelated maps, "
            "1 opposite ones."
        )


def _pooling(run: AuditRun) -> Iterator[str]:
    no_ledger = run.plan.task == "imported" or run.plan.approximates is not None
    if run.plan.model.modality == "image":
        yield (
            "Heatmaps are upsampled bilinearly and laid over the part of the picture that the "
            "model saw; edges that its preparation cuts off stay uncoloured."
        )
    else:
        yield (
            "The relevance of a word is the sum over its pieces. Special tokens are no words"
            f"{'' if no_ledger else ': their share is in the ledger'}. "
            "Top words are counted in lower case. By rarity they are weighted with the inverse "
            "document frequency: ln(N / documents), N all explanations for the target whatever the "
            "class, documents those of texts with the word."
        )
    yield (
        "One colour scale serves all examples: its end is the value that the strongest word or "
        f"patch of {SHARE * 100:.0f}\u00a0% of all explanations does not exceed. On an example's "
        "own scale its strongest word or patch has the full colour."
    )


def _groups(run: AuditRun) -> Iterator[str]:
    if not run.plan.groups:
        return
    matching = run.plan.matching
    yield (
        "Entities are found by their spelling, at word boundaries, longest match first. Names that "
        f"are ordinary words too count {_AMBIGUOUS[matching.ambiguous]}; `transexplain matches` "
        "tells how often they were left out, and draws matches for a person to check. A mention's "
        "relevance is the sum over its pieces."
    )
    if matching.columns:
        columns = "column" if len(matching.columns) == 1 else "columns"
        yield (
            f"Groups of the {columns} {' and '.join(matching.columns)} are of whole items: the "
            "relevance is the sum over an item's positions without special ones, and the item is "
            "the entity."
        )
    yield from _statistics(run)
    yield from _checks(run)


def _statistics(run: AuditRun) -> Iterator[str]:
    yield (
        "The unit of the group table is the entity, not the mention, because mentions of one name "
        "share its embedding. p: entities swap groups at random, with Welch's t as the statistic. "
        f"Intervals are 95\u00a0%: Student for a group's mean, Welch for a difference below "
        f"{BOOTSTRAP_FROM} entities on a side, from there on a Poisson bootstrap over entities. "
        f"With fewer than {MIN_ENTITIES} entities on either side nothing is computed. Where the "
        "reference has the same entities (regions of one picture), each is compared with itself: "
        "p is then of sign flips."
    )
    yield (
        "Tables by predicted class, by right or wrong and by slice are families of their own: p is "
        "adjusted within each split, not with the table over all items. Words as frequent, ranks, "
        "distributions and a second lexicon have no vote."
    )
    limits = run.plan.matters
    yield (
        "Verdicts on groups are made of answers. *Different answers*: the mean change of the "
        "answer's log-odds (or probability) when names of a group take the place of names of its "
        f"reference is beyond {limits.logit:g} logit ({100 * limits.probability:g} points), or "
        "the change differs between texts by more than that; the interval is over names and texts "
        "(or clusters of them), clustered both ways. *Different outcomes*: rates differ by more "
        f"than {100 * limits.probability:g} points and their ratio is outside "
        f"{limits.impact_ratio:g} to {1 / limits.impact_ratio:.2f}; intervals are Wilson's at the "
        "effective number of items, Newcombe's and Donner and Zou's. p of all groups, answers and "
        f"strata, {_CORRECTED[run.plan.correction]}, is at most 0.05. *Equivalent*: the 90\u00a0% "
        "intervals of both lie within the limits. *Explained differently*: equivalent, and "
        "relevance differs."
    )
    yield (
        f"Relevance: *difference* where p, {_CORRECTED[run.plan.correction]}, is at most 0.05 and "
        f"the difference exceeds {run.plan.practical:g}; *equivalent* where its 90\u00a0% interval "
        f"lies within ±{run.plan.practical:g}; *inconclusive* otherwise. None of them says why: "
        "attribution is not causation."
    )


def _checks(run: AuditRun) -> Iterator[str]:
    check = run.plan.check
    if check is None:
        return
    ways = []
    if not check.whole:
        ways.append("one randomly sampled mention of each was ablated")
    if check.swap:
        ways.append("other names of its group and of its reference took its place")
    if check.regions:
        ways.append(
            "every region marked in a picture was hidden: filled with the picture's mean colour, "
            "blurred, and in-painted"
        )
    if check.randomised:
        many = "a model" if check.draws == 1 else f"one of {check.draws} models"
        ways.append(f"{many} whose weights were all drawn anew explained them for the same classes")
    yield (
        f"Items that mention somebody were looked at again where their row was drawn (share "
        f"{100 * check.share:.3g}\u00a0%): {'; '.join(ways)}. Rates of flips are means over "
        "entities with Student's interval, or Wilson's over entities where all have the rate 0 or "
        "1. Of this only other names have a vote in the verdicts."
    )


_AMBIGUOUS: dict[AmbiguityPolicy, str] = {
    "cue": "where a capital, a title or a neighbouring word tells them from these",
    "always": "wherever they stand",
    "never": "nowhere",
}
_CORRECTED: dict[Correction, str] = {
    "bh": "adjusted over the whole table by Benjamini and Hochberg",
    "by": "adjusted over the whole table by Benjamini and Yekutieli",
    "holm": "adjusted over the whole table by Holm",
    "none": "not adjusted for the number of comparisons",
}
