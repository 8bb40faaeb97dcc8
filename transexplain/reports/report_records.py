"""What a report holds: frozen records of plain values, the same for people and for programs.
`schema_version` rises when a key changes its meaning or goes; new keys do not raise it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from transexplain.analysis.groups.counterfactuals import Counterfactual
from transexplain.analysis.groups.entity_ranking import Ranking
from transexplain.analysis.groups.group_controls import Placebo, Planted
from transexplain.analysis.groups.group_splits import Split
from transexplain.analysis.groups.group_verdicts import GroupVerdict
from transexplain.analysis.groups.matching_sheet import Precision
from transexplain.analysis.groups.mention_ablation import Ablations
from transexplain.analysis.groups.mixed_audits import Mixed
from transexplain.analysis.groups.outcomes import Outcome
from transexplain.analysis.groups.randomised_control import Randomised
from transexplain.reports.proxies import Proxies
from transexplain.reports.row_records import (
    ClassView,
    Confusion,
    Dropped,
    Gallery,
    GroupQuality,
    RareGroup,
)
from transexplain.types.findings import GroupStatistic, Practical
from transexplain.types.scores import Approximation


@dataclass(frozen=True, kw_only=True, slots=True)
class Untested:
    """Something that nobody may conclude from a run."""

    what: str
    why: str
    remedy: str  #: how to test it; "": this software cannot


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupMatching:
    """How a group was found in the items."""

    group: str
    terms: int  #: different spellings that the lexicon has; 0: the group is a column or marks
    entities: int  #: different ones that were found
    mentions: int
    items: int  #: that mention it
    most: str  #: entity with the most mentions; "": none was found
    most_share: float  #: of the mentions that are its
    dropped: int  #: places left out as ordinary words
    left_out: float  #: share of these among the places that the group could have
    precision: Precision | None = None  #: by a person's sheet; None: nobody checked


@dataclass(frozen=True, kw_only=True, slots=True)
class HashedFile:
    """One file that decided the numbers."""

    part: str  #: model | dataset | lexicon | explainer
    name: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """The manifest in short: with what, on what and by whom the numbers were computed."""

    software: tuple[tuple[str, str], ...]  #: (package, version)
    machines: tuple[str, ...]  #: that computed, each once
    attention: str  #: kernel; "": not recorded
    git: str  #: commit of the caller's folder; "": none was recorded
    seeds: tuple[tuple[str, int], ...]  #: (place in the plan, seed)
    files: tuple[HashedFile, ...]
    shards: int
    attempts: int
    workers: int
    seconds: float  #: computing, over all shards


@dataclass(frozen=True, kw_only=True, slots=True)
class FaithfulnessRow:
    """What one metric says of the audit's method on a sample, beside random relevance."""

    target: str
    metric: str
    title: str
    unit: str
    better: str  #: higher | lower | neither
    of_content: bool  #: says something of where the relevance lies
    items: int  #: measured on
    missing: int  #: of the sample, could not be measured
    mean: float | None
    interval: tuple[float, float] | None  #: 95 %
    random: float | None  #: mean of random relevance
    difference: float | None  #: the method's minus random's, on common items
    difference_interval: tuple[float, float] | None  #: 95 %
    common: int  #: items of the difference
    p: float | None  #: of the difference, adjusted over the rows
    beats: bool | None  #: random, beyond chance; None: it cannot be said, or is no question


@dataclass(frozen=True, kw_only=True, slots=True)
class Faithfulness:
    """Whether the audit's method tells what this model goes by, measured on a sample."""

    method: str  #: label in the evaluation
    items: int  #: of the sample that were measured
    rows: tuple[FaithfulnessRow, ...]


SCHEMA_VERSION = 3

StatementKind = Literal["fact", "good", "problem", "flagged", "clear", "unknown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """One sentence of the headline."""

    kind: StatementKind
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Audited:
    """What was audited, with what, and how."""

    run_id: str
    name: str
    state: str  #: running | done | cancelled
    created: float  #: seconds since the epoch
    finished: float | None
    plan_digest: str  #: sha256 of the plan
    version: str  #: of TransExplain, when the report was made
    model: str
    model_digest: str  #: sha256 over weights, config and tokenizer
    dtype: str
    device: str
    modality: str
    classes: tuple[str, ...]
    dataset: str
    fingerprint: str  #: sha256 of the dataset's snapshot
    root: str  #: folder that picture paths are relative to
    method: str
    parameters: Mapping[str, Any]
    targets: tuple[str, ...]
    at: tuple[str, ...]  #: leaves that were measured; one, unless the run is odd
    unit: str  #: of every relevance
    long_text: str
    max_length: int | None
    payload: str  #: number type of stored relevance
    window: int | None = None  #: positions of a window, where long texts are read in windows
    stride: int | None = None  #: positions of text between windows; None: no overlap
    long_text_join: str = "mean"  #: of the windows' logits
    task: str = "audit"  #: `imported`: the attributions were made elsewhere
    inputs_digest: str = ""  #: names the run: sha256 of what decides its numbers
    manifest_digest: str = ""  #: sha256 of the whole manifest, execution included


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """How many items went where."""

    total: int
    done: int
    failed: int
    pending: int  #: neither done nor failed: the run is not over, or shards are dead
    dead_shards: int
    truncated: int
    labelled: int
    correct: int  #: predicted as labelled
    accuracy: float | None  #: correct / labelled; None where no item has a label


@dataclass(frozen=True, kw_only=True, slots=True)
class Conservation:
    """How exactly the ledgers close, and where the relevance went, over all attributions."""

    attributions: int
    worst: float  #: largest |gap| / sum of |terms|
    mean: float
    worst_item: str
    tolerance: float | None  #: for this number type; None: measured, not judged
    above: int  #: attributions above the tolerance; 0 where there is none
    average: Mapping[str, float]  #: ledger entry -> mean over attributions, in the unit
    average_size: Mapping[str, float]  #: the same of absolute values


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassSensitivity:
    """Whether the method tells classes apart, on a sample of the run; see metrics."""

    mean: float  #: 0: the same map for every class, 0.5: unrelated maps, 1: opposite ones
    items: int  #: measured on


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """The entity-group table and what it was judged by."""

    rows: tuple[GroupStatistic, ...]
    reference: str
    practical: float  #: smallest difference of relevance that matters, in the unit
    correction: str  #: of p-values for the number of comparisons
    never_mentioned: tuple[str, ...]
    sources: Mapping[str, str]  #: group -> where its terms came from
    limits: Practical = field(default_factory=Practical)  #: of answers: what matters
    verdicts: tuple[GroupVerdict, ...] = ()  #: of every mentioned group but references
    outcomes: tuple[Outcome, ...] = ()  #: of answers, by group, stratum and answer
    counterfactuals: tuple[Counterfactual, ...] = ()  #: of swaps and regions, the same way
    proxies: tuple[Proxies, ...] = ()  #: of groups with different outcomes
    removals: Ablations | None = None  #: None: no mention was removed
    randomised: Randomised | None = None  #: None: no item was drawn for it
    placebo: Placebo | None = None  #: None: nothing could be compared
    planted: tuple[Planted, ...] = ()  #: by size; empty: not asked for, or nothing is compared
    rankings: tuple[Ranking, ...] = ()  #: of entities, by target and class; only the ends
    splits: tuple[Split, ...] = ()  #: the table by predicted class, right or wrong, and slice
    dropped: tuple[Dropped, ...] = ()  #: left out as ambiguous
    rare: tuple[RareGroup, ...] = ()  #: meetings of groups that are not compared, under 2 %
    quality: tuple[GroupQuality, ...] = ()  #: the reference's first
    matching: tuple[GroupMatching, ...] = ()  #: in the order of the plan
    precision: Precision | None = None  #: of all checked matches; None: nobody checked any


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureExample:
    """One item that could not be explained."""

    item_id: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureKind:
    """Items that failed for the same reason."""

    kind: str
    count: int
    examples: tuple[FailureExample, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupChange:
    """One group's difference to the reference in the run before and in this one."""

    group: str
    target: str
    class_name: str
    before: float | None  #: in the unit; None: too few entities, or the group was not there
    now: float | None
    flagged_before: bool
    flagged_now: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Previous:
    """The run that this one is compared with, and what is different; nothing is tested here."""

    run_id: str
    name: str
    state: str
    created: float
    model_changed: bool  #: weights, config or tokenizer
    data_changed: bool
    method_changed: bool  #: or its parameters
    counts: Counts
    common: int  #: items by id that both runs explained
    other_prediction: int  #: of these
    groups: tuple[GroupChange, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Everything a report says about one run."""

    headline: tuple[Statement, ...]
    audited: Audited
    counts: Counts
    conservation: Conservation | None
    class_sensitivity: ClassSensitivity | None  #: None: not measured (one class, or an older run)
    classes: tuple[ClassView, ...]
    classes_omitted: int  #: (target, class) pairs with fewer items than those shown
    confusion: Confusion
    groups: Groups | None  #: None: the audit named no groups
    gallery: Gallery
    failures: tuple[FailureKind, ...]
    notes: tuple[str, ...]  #: methods and assumptions
    faithfulness: Faithfulness | None = None  #: None: nothing was measured about explanations
    previous: Previous | None = None  #: None: the run names none, or it was deleted since
    verdict: Statement | None = None  #: the whole in one sentence
    untested: tuple[Untested, ...] = ()
    provenance: Provenance | None = None
    mixed: Mixed | None = None  #: None: the method explained alone
    approximates: Approximation | None = None  #: None: the method computes what it says
    fewest: int | None = (
        None  #: items that a row of a redacted report rests on; None: nothing is left out
    )
    sections: Mapping[str, Any] = field(default_factory=dict)  #: name -> record of a section
    schema_version: int = SCHEMA_VERSION
