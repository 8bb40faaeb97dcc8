"""Records of an audit: what is audited, how, and the result of one shard."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, get_args, overload

from transexplain.errors import ConfigurationError
from transexplain.types.findings import Correction, Practical
from transexplain.types.items import Attribution, EntityGroup, ItemFailure, ItemOutcome, Mention
from transexplain.types.label_sets import SeveralLabels, thresholds_of
from transexplain.types.scores import (
    Approximation,
    EvaluationPlan,
    ExactPlan,
    MethodSpec,
    MetricScore,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuePlace:
    """What decides whose shard a worker takes next, where several runs wait."""

    priority: int = 0  #: higher first
    share: float = 1.0  #: above 0: shards in hand are divided by it among runs of one priority
    most_workers: int | None = None  #: shards in hand at once; None: no cap


NO_PREFERENCE = QueuePlace()


LongTexts = Literal["truncate", "window", "error"]
Join = Literal["mean", "sum"]


def check_long_texts(
    long_text: str,
    *,
    max_length: int | None = None,
    window: int | None = None,
    stride: int | None = None,
    join: str = "mean",
) -> None:
    """Raise ConfigurationError for parameters of long texts that contradict each other."""
    for key, word, known in (("long_text", long_text, LongTexts), ("long_text_join", join, Join)):
        if word not in get_args(known):
            raise ConfigurationError(f"{key}={word!r} is none of {', '.join(get_args(known))}")
    given = {"window": window, "stride": stride, "long_text_join": None if join == "mean" else join}
    for name, value in given.items():
        if value is not None and long_text != "window":
            raise ConfigurationError(
                f'{name}={value} is for long_text="window", but long_text is "{long_text}"'
            )
        if isinstance(value, int) and value < 1:
            raise ConfigurationError(f"{name}={value} must be at least 1")
    if window is not None and max_length is not None:
        raise ConfigurationError(
            f"window={window} and max_length={max_length} both say how many positions are read at "
            "once; give one of them"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """One way in which a model may treat people unfairly, as whoever answers for it wrote it down.

    A text that was not given is empty.
    """

    harm: str
    affected: str = ""  #: who may suffer it
    measure: str = ""  #: what would show it
    threshold: str = ""  #: from which value of the measure on it is not accepted
    mitigation: str = ""  #: what is done against it
    owner: str = ""  #: who answers for it
    review_date: str = ""  #: day on which it is looked at again, YYYY-MM-DD


@dataclass(frozen=True, kw_only=True, slots=True)
class ImpactPlan:
    """Which columns hold the categories of people, and which answers are good for them.

    Rates are those of New York City's Local Law 144 (6 RCNY 5-300 and 5-301).
    """

    favourable: tuple[str, ...]  #: classes or classifications, each looked at by itself
    sex: str | None = None  #: column of data.meta; None: there is none
    ethnicity: str | None = None  #: column of data.meta, of race or ethnicity
    unknown: tuple[str, ...] = ()  #: values that say nothing, besides the empty one
    exclude_below: float = 0.02  #: share of the items below which a category gets no ratio
    exclusion_reason: str = ""  #: why such categories are left out
    data_source: str = ""  #: where the data are from, and how they came about
    data_date: str = ""  #: day or period that they are of
    in_use_since: str = ""  #: day on which the model was first used, YYYY-MM-DD

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that there are."""
        return tuple(column for column in (self.sex, self.ethnicity) if column is not None)


Modality = Literal["text", "image", "nodes"]
#: what a model answers: one of its classes for an item, any of its labels for an item (a sigmoid at
#: each logit), one of its labels for every token, where in a context an answer is, or what a
#: language model generates
Head = Literal["classes", "labels", "tokens", "span", "answer"]
#: the head, and the only class, of a language model that generates answers
GENERATED: Final = "answer"
#: heads with logits at every position
AT_POSITIONS = frozenset({"tokens", "span"})
DeviceClass = Literal["cpu", "gpu"]
RunState = Literal["running", "done", "cancelled"]
#: near-duplicates among texts are looked for, or not
Duplicates = Literal["auto", "off"]
#: items are copied into a snapshot, or their files are listed in a manifest and read in place;
#: auto: copied up to `dataset_plan.COPIED` bytes
Snapshot = Literal["auto", "copy", "manifest"]
#: terms that are ordinary words too count with a cue, always, never, or where the plan's recogniser
#: finds an entity
AmbiguityPolicy = Literal["cue", "always", "never", "recogniser"]
#: a term's capitals have to be there, its letters as they are, or letters in any case
CasePolicy = Literal["smart", "exact", "ignore"]
#: names are found whatever their accents and the width of their letters, or as they are spelled
MatchPolicy = Literal["folded", "exact"]
#: an evaluation measures explanations of every item and stores none of them; imported ones were
#: made elsewhere, and no model is loaded
Task = Literal["audit", "evaluation", "imported"]
#: whether explained items lie in the store and in a folder of Parquet files, or in the files alone
Keep = Literal["both", "sink"]
#: what the store keeps of texts: all of them, keyed hashes of their words, or nothing
StoreText = Literal["full", "hashed", "none"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFile:
    """A file that an audit was made from, and its bytes' digest when the audit was planned."""

    #: absolute, or a URL; of a model the name within it; `builtin:NAME` of what is shipped
    path: str
    sha256: str  #: of its bytes; "" where `state` stands for it
    size: int | None = None  #: bytes, of a file in an object store
    state: str = ""  #: of such a file, another one after each change: its ETag


def device_class(device: str) -> DeviceClass:
    """`cpu`, or `gpu` for any accelerator."""
    return "cpu" if device.partition(":")[0] == "cpu" else "gpu"


#: what stands for a device where the blocks of a model lie on all cards
SPREAD = "spread"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRef:
    """Which model, how loaded, and the digest that says it is still the same one."""

    source: str  #: directory, hub id, or `timm:NAME?checkpoint=FILE`
    dtype: str = "float32"  #: float64 | float32 | bfloat16 | float16
    device: str = "cpu"  #: torch device, or `SPREAD`
    modality: Modality = "text"
    classes: tuple[str, ...] = ()  #: class names by index
    digest: str = ""  #: sha256 over weights, config and tokenizer; "" = not resolved yet
    files: tuple[SourceFile, ...] = ()  #: those that the digest covers, by name
    attention: str = ""  #: kernel: sdpa, eager, ...; "": the model names none
    head: Head = "classes"


def several_of(
    model: ModelRef, thresholds: float | Mapping[str, float] | None, separator: str | None = None
) -> SeveralLabels | None:
    """Return how a model gives an item several labels; None: it does not.

    Raises ConfigurationError for what is said of several labels where it does not.
    """
    if model.head == "labels":
        by_class = thresholds_of(thresholds, model.classes)
        return SeveralLabels(thresholds=by_class, separator=separator)
    for key, value in (("thresholds", thresholds), ("label_separator", separator)):
        if value is not None:
            raise ConfigurationError(
                f"{key} is for a model that may give an item several labels, one with problem_type "
                "multi_label_classification in its config.json; remove it"
            )
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetSpec:
    """Where items come from and how their columns are read, as the user wrote it."""

    #: `x.csv|tsv|jsonl|parquet|tar` (globs, .gz), `imagefolder:DIR`, `graphs:DIR` or
    #: `eraser:DIR#split`
    source: str
    #: column of the text, or of both texts of a pair; default: `text`, else `sentence`
    text: str | tuple[str, str] | None = None
    #: column of the image path, relative to the file's folder, or of its bytes; of a tar the
    #: suffix of the image
    image: str | None = None
    label: str | None = None  #: column of the label; default: `label` where it exists
    id: str | None = None  #: column of the item id; default: the row number
    meta: tuple[str, ...] = ()  #: further columns kept with each item
    evidence: str | None = None  #: column of what people marked: spans, boxes or a mask's path
    spans: str | None = None  #: column of entities that are marked in each item
    cluster: str | None = None  #: column of what makes items alike: author, thread, source
    template: str | None = None  #: column of the template that each text was made from
    duplicates: Duplicates = "auto"  #: whether texts that are nearly the same are made clusters
    quoting: Literal["auto", "none", "rfc4180"] = "auto"  #: auto: TSV none, CSV RFC 4180
    encoding: str | None = None  #: of text files; None: UTF-8, or what is detected
    delimiter: str | None = None  #: between cells; None: that of the suffix, or what is detected
    sheet: str | None = None  #: of a workbook; None: the first
    snapshot: Snapshot = "auto"
    limit: int | None = None  #: keep only the first rows
    sample: int | None = None  #: of those draw so many
    seed: int = 0  #: of the drawing

    @property
    def columns(self) -> list[str]:
        """The fields that name columns, in as far as they are given."""
        names = "text image label id evidence spans meta cluster template"
        return [name for name in names.split() if getattr(self, name)]


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetRef:
    """A dataset made ready for sharding: a Parquet file that opens at any row, or a manifest."""

    source: str  #: as the user wrote it
    modality: Modality
    #: absolute path of the Parquet snapshot, or the URL of its pieces
    snapshot: str
    fingerprint: str  #: sha256 of the snapshot's bytes, verified by workers
    rows: int
    root: str = ""  #: folder that image paths are relative to; a path or a URL
    #: of attributions made elsewhere: sha256 over ids and texts alone; "": the fingerprint says it
    corpus: str = ""
    #: what the snapshot was read from; empty for pictures, which the snapshot has digests of, and
    #: for a source of very many files
    files: tuple[SourceFile, ...] = ()
    #: the snapshot is a manifest, see `listed_files`: rows are read from the files that it lists
    manifest: bool = False
    #: what of the files was detected and is not usual, for a reader
    read_as: tuple[str, ...] = ()
    #: what the files call the numbers 0, 1, ... of the labels, see `data.class_names`
    label_names: tuple[str, ...] = ()

    @property
    def content(self) -> str:
        """Return what two runs over the same items have in common."""
        return self.corpus or self.fingerprint


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """Rows `start` (inclusive) to `stop` (exclusive) of the dataset."""

    index: int
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardCut(Sequence[Shard]):
    """Consecutive shards of `size` rows, the last one shorter; each is made when it is read."""

    rows: int  #: of the dataset
    size: int

    def __len__(self) -> int:
        return len(range(0, self.rows, self.size))

    @overload
    def __getitem__(self, index: int) -> Shard: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Shard, ...]: ...

    def __getitem__(self, index: int | slice) -> Shard | tuple[Shard, ...]:
        if isinstance(index, slice):
            return tuple(self[row] for row in range(*index.indices(len(self))))
        place = range(len(self))[index]
        start = place * self.size
        return Shard(index=place, start=start, stop=min(start + self.size, self.rows))


@dataclass(frozen=True, kw_only=True, slots=True)
class Classification:
    """A user's own class: the sum of the logits of the model classes it names."""

    name: str
    classes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ShardResult:
    """Everything one shard produced; saved in one transaction."""

    shard: Shard
    outcomes: tuple[ItemOutcome, ...]
    attributions: tuple[Attribution, ...]
    failures: tuple[ItemFailure, ...]
    mentions: tuple[Mention, ...]
    aggregate: Mapping[str, Any]  #: JSON-able; see bias.aggregates
    seconds: float  #: wall clock, from its first item to its last pass by the model
    scores: tuple[MetricScore, ...] = ()  #: of the items that were evaluated
    steps: tuple[str, ...] = ()  #: how explanations ran: some of compiled, eager, replayed
    #: seconds of the device since the worker's shard before, by what for; see `device_time`
    device: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Matching:
    """How the terms of a lexicon are found in texts, and which items are groups as a whole."""

    ambiguous: AmbiguityPolicy = "cue"
    case: CasePolicy = "smart"
    match: MatchPolicy = "folded"
    #: metadata columns whose values are groups of whole items; one alone is a text
    column: str | tuple[str, ...] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns as a list."""
        return (self.column,) if isinstance(self.column, str) else self.column or ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RecogniserPlan:
    """Which named-entity recogniser finds mentions in texts, and of which types."""

    source: str  #: `spacy:PACKAGE_OR_FOLDER`, `gliner:FOLDER` or `package.module:function`
    name: str  #: software and model, with the versions that it was planned with
    digest: str = ""  #: sha256 over the model's files; "": it has none
    types: tuple[str, ...] = ()  #: of entities that are groups

    @property
    def source_of_groups(self) -> str:
        """The source of the groups whose mentions it finds."""
        return f"found by the recogniser {self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CandidateWord:
    """A word that may mention a group and is no term of its lexicon; see `mention_coverage`."""

    word: str  #: in lower case
    group: str
    reference: str
    entity: str = ""  #: whose spelling it may be; "": it is a pronoun or a title
    texts: int  #: of those that planning reads: of the group and with the word
    #: log-odds of the word in texts of the group against those of its reference, within label and
    #: stratum, and its interval; None: a spelling, which stands in for a mention
    association: float | None = None
    interval: tuple[float, float] | None = None
    share: float = 1.0  #: of its texts in which it is swapped or ablated


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckPlan:
    """Which items that mention somebody are checked, and in which ways.

    A mention is removed from each sampled text; the other checks are options.
    """

    share: float  #: of the rows that are drawn; those that mention nobody are passed over
    seed: int = 0
    whole: bool = False  #: items that are in a group by other than their text count, too
    swap: bool = True  #: a mention is replaced by one of another group
    randomised: bool = True  #: explained by the model with new random weights
    draws: int = 1  #: of the weights; each explains its part of the items
    counts: Mapping[str, int] = field(default_factory=dict)  #: entity -> mentions in a sample
    #: entity -> mentions there by spelling, where texts have accents that its terms have not
    spellings: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: group -> share of the texts that mention it in which the mention is swapped
    swaps: Mapping[str, float] = field(default_factory=dict)
    swap_passes: int = 0  #: forward passes that these take, about
    regions: bool = False  #: every marked region of a picture that is drawn is hidden
    candidates: tuple[CandidateWord, ...] = ()  #: words that the lexicon may lack


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivacyPlan:
    """What becomes of texts before they are stored; see docs/explanation/privacy.md."""

    store_text: StoreText = "full"
    redact: str | None = None  #: `package.module:function` that says which characters are blanked
    key: str = ""  #: fingerprint of the key that words are hashed with; "": they are not
    redact_file: str = ""  #: where that function's module lies; "": who works on it allows its name
    redact_sha256: str = ""  #: of that file


@dataclass(frozen=True, kw_only=True, slots=True)
class Sink:
    """A folder that gets explained items as Parquet files, one for each shard."""

    url: str  #: URL or absolute path, with `{run}` in the place of the run's id
    keep: Keep = "both"


USUAL_BATCH = 2048  #: positions of a batch on a CPU


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditPlan:
    """A resolved audit: everything a worker needs besides the shard, and nothing else."""

    name: str
    model: ModelRef
    dataset: DatasetRef
    method: MethodSpec = field(default_factory=MethodSpec)
    targets: tuple[str, ...] = ("predicted",)
    classifications: tuple[Classification, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)  #: dataset label -> class name
    long_text: LongTexts = "truncate"
    max_length: int | None = None  #: positions; default: what the model takes
    window: int | None = None  #: positions of a window; default: where texts would be cut
    stride: int | None = None  #: positions of text between windows; default: no overlap
    long_text_join: Join = "mean"  #: of the windows' logits
    batch_tokens: int = USUAL_BATCH  #: positions per batch, padding included; see `batch_budget`
    shard_size: int = 256
    groups: tuple[EntityGroup, ...] = ()
    lexicons: tuple[SourceFile, ...] = ()  #: files that groups were read from
    matching: Matching = field(default_factory=Matching)
    #: a group for all, or one for some families; None: all other groups of a group's family
    reference: str | Mapping[str, str] | None = None
    practical: float = 0.1  #: smallest difference that matters, in logits
    correction: Correction = "bh"  #: of p-values for the number of comparisons
    complete: bool = False  #: the groups' lists are all names that there are, and no sample
    favourable: tuple[str, ...] = ()  #: classes whose impact ratio is judged
    slice: str | None = None  #: metadata column that the statistics are also split by
    check: CheckPlan | None = None  #: None: no item is checked
    planted: float | None = None  #: size of a planted difference, in the unit; None: none
    tolerance: float = 0.0  #: share of failed items above which a run exits with 3
    max_attempts: int = 3  #: attempts of a shard before it is dead
    evaluation: EvaluationPlan | None = None  #: what is measured about explanations
    task: Task = "audit"
    second: tuple[EntityGroup, ...] = ()  #: by another lexicon, for robustness rows only
    privacy: PrivacyPlan | None = None  #: None: texts are stored as they are
    exact: ExactPlan | None = None  #: None: the method explains alone
    approximates: Approximation | None = None  #: None: the method computes what it says
    #: families, or columns of `matching`, whose meetings are groups; see `groups.intersections`
    intersections: tuple[tuple[str, ...], ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()  #: words that take each other's place in swaps
    limits: Practical | None = None  #: of answers; None: those of `practical` and the usual ones
    scenario: tuple[Scenario, ...] = ()  #: the harms that the audit looks for
    impact: ImpactPlan | None = None  #: None: no rates by categories of people are computed
    batch_fixed: bool = False  #: the usual `batch_tokens` were requested, on a GPU too
    recogniser: RecogniserPlan | None = None  #: None: mentions are those of lexicons and marks
    sink: Sink | None = None  #: None: results lie in the store alone
    several: SeveralLabels | None = None  #: None: the model gives an item one class

    def document(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return asdict(self)

    @property
    def batch_budget(self) -> int | None:
        """Positions per batch; None: the usual on a CPU, and what measuring finds on a GPU."""
        usual = self.batch_tokens == USUAL_BATCH and not self.batch_fixed
        return None if usual else self.batch_tokens

    @property
    def matters(self) -> Practical:
        """The smallest differences that matter."""
        return self.limits or Practical(logit=self.practical)

    @property
    def digest(self) -> str:
        """Sha256 of the canonical JSON: names what was audited and how."""
        text = json.dumps(self.document(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditRun:
    """One execution of a plan, as the store records it."""

    id: str
    plan: AuditPlan
    state: RunState
    created: float  #: seconds since the epoch, database time
    finished: float | None
    shards: Mapping[str, int]  #: state -> count
    previous: str | None = None  #: id of the run to compare with
