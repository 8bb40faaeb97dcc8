"""The records of a comparison of two runs, the same for people and for programs.

`schema_version` rises when a key changes its meaning or goes; new keys do not raise it.
"""

from dataclasses import dataclass

from transexplain.analysis.groups.paired_runs import GroupShift
from transexplain.reports.report_section import RunNamed, Statement
from transexplain.reports.sections.item_fates import FateCounts
from transexplain.reports.verdict_words import RateChange, VerdictChange
from transexplain.types.findings import Verdict

SCHEMA_VERSION = 1

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedRun(RunNamed):
    """One of the two runs."""

    model: str
    model_digest: str  #: sha256 over weights, config and tokenizer
    dataset: str
    counts: FateCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class Disparity:
    """A difference between both runs other than the model."""

    what: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeCount:
    """Items by what they were and are predicted as."""

    before: str
    after: str
    items: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedItem:
    """One item that is predicted differently."""

    item_id: str
    label: str | None
    before: str  #: its class; of a model that generates the beginning of its answer, where stored
    after: str
    #: after: logit of the new class minus that of the old one; None: the classes are not the same
    margin: float | None
    text: str | None  #: its beginning; of a model that generates that of the prompt


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundChange:
    """The entities of one type, or the answers, that either run finds in the common items."""

    name: str
    before: int
    after: int
    same: int  #: with the same characters and the same type in both
    renamed: int  #: with the same characters in both, and another type after


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupAnswers:
    """The generated answers to the prompts that name one group."""

    group: str
    items: int  #: prompts that both runs answered
    changed: int  #: of these, that have another answer in the later run
    share: float  #: changed / items
    labelled: int  #: of the items, with the same expected answer in both
    right_before: int
    right_after: int


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerChanges:
    """The share of prompts to which two models that generate answers give different ones.

    Answers are the same where their characters are; of texts that are stored as hashes, where
    their words are, in any case.
    """

    items: int  #: prompts that both runs answered
    changed: int  #: of these, that have another answer in the later run
    share: float | None  #: changed / items; None: no item
    unknown: int  #: further prompts of both, whose answers are not stored
    groups: tuple[GroupAnswers, ...]  #: by name; a prompt counts for every group that it names


@dataclass(frozen=True, kw_only=True, slots=True)
class Predictions:
    """A comparison of the predictions of both runs on the items that both explained."""

    common: int  #: with the same id and the same content
    other_content: int  #: left out: the id is in both runs, and the contents differ
    unknown_content: int  #: left out: whether the contents differ is unknown
    changed: int  #: predicted differently
    counts: tuple[ChangeCount, ...]  #: most frequent first
    shown: tuple[ChangedItem, ...]  #: the widest margins first
    labelled: int  #: common items with the same label in both
    right_before: int
    right_after: int
    lost: int  #: right before, wrong after
    gained: int  #: wrong before, right after
    p: float | None  #: exact McNemar test of lost against gained; None: no item has a label
    #: of models that label tokens or mark answers, explained for `predicted`; empty: of others
    found: tuple[FoundChange, ...] = ()
    answers: AnswerChanges | None = None  #: of models that generate their answers; None: others


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedMean:
    """A mean over items."""

    mean: float
    interval: Interval | None  #: 95 %; None: too few items
    items: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LeastAlike:
    """One item whose relevance is ranked very differently."""

    item_id: str
    agreement: float
    text: str | None  #: its beginning


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassChange:
    """The items that both runs explained for one target and class."""

    target: str
    class_name: str
    items: int
    logit_before: float  #: mean of the explained logit
    logit_after: float
    logit_change: ComparedMean
    logit_change_size: float  #: mean of |change|
    agreement: (
        ComparedMean | None
    )  #: Spearman's correlation of relevance, per item; None: of no item
    without_agreement: int  #: items with too few positions in common
    least_alike: tuple[LeastAlike, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Transition:
    """The finding of relevance alone on a group in either run; None: there is none."""

    group: str
    target: str
    class_name: str
    before: Verdict | None
    after: Verdict | None
    difference_before: float | None  #: to the reference, in the unit
    difference_after: float | None
    turned: bool  #: a difference in both, of the other sign


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupChanges:
    """Entity groups in both runs: predictions and verdicts, then the relevance of mentions."""

    rates: tuple[RateChange, ...]  #: of predictions of classes, paired on the common items
    verdicts: tuple[VerdictChange, ...]  #: of either run by itself
    shifts: tuple[GroupShift, ...]  #: of relevance
    transitions: tuple[Transition, ...]  #: of what relevance says
    unpaired: int  #: mentions in one run only, or explained for another class or answer
    reference: str
    practical: float  #: smallest change of relevance that matters, in the unit
    correction: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DriftSummary:
    """Everything a comparison of two runs says."""

    headline: tuple[Statement, ...]
    version: str  #: of TransExplain
    before: ComparedRun
    after: ComparedRun
    modality: str
    classes: tuple[str, ...]
    method: str
    unit: str  #: of every relevance
    disparities: tuple[Disparity, ...]  #: what else differs; empty unless it was forced
    predictions: Predictions
    changes: tuple[ClassChange, ...]
    other_class: int  #: explanations of an item for a class that the other run did not explain
    groups: GroupChanges | None  #: None: a run has no groups
    schema_version: int = SCHEMA_VERSION
