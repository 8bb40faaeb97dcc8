"""Records of one explanation: frozen, without behaviour beyond what their fields imply.

Dimension letters everywhere: B items, T positions, L layers, H heads, D hidden, C classes.
Arrays here are numpy; nothing in this module imports torch. What is audited and how is in
`plans.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import WrongKindError
from transexplain.types.drawing import Drawable, draw
from transexplain.types.pairs import check_pair, joined, texts_of
from transexplain.types.tokens import NO_WORD, Token, Tokens

Unit = Literal["logits", "unit_relevance", "score"]
TargetKind = Literal["predicted", "label", "class", "all", "top", "contrast", "group", "span"]
#: what a term names that is an ordinary word too: a person or the like, or a place
Ambiguity = Literal["name", "place"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Evidence:
    """Where people say that the evidence is: one of these is given."""

    spans: tuple[tuple[int, int], ...] = ()  #: characters of the text, from and to
    #: left, top, right, bottom as fractions of the original picture
    boxes: tuple[tuple[float, float, float, float], ...] = ()
    mask: NDArray[np.bool_] | None = None  #: (height, width) of the original picture


@dataclass(frozen=True, kw_only=True, slots=True)
class Annotation:
    """An entity that people or another program marked in an item."""

    group: str
    entity: str  #: "" in a picture or graph: the item itself
    span: tuple[int, int] | None = None  #: characters of the text, from and to
    box: tuple[float, float, float, float] | None = None  #: as in `Evidence`
    mask: NDArray[np.bool_] | None = field(default=None, compare=False)  #: as in `Evidence`
    nodes: tuple[int, ...] = ()  #: of a graph, counted from 0 and without virtual ones


_SHOWN = 40  #: characters of a text in a repr


def _shown(content: Any) -> str:
    """Return what an item is, for a line: the beginning of a text, the size of a picture."""
    if isinstance(content, str):
        return repr(content if len(content) <= _SHOWN else f"{content[: _SHOWN - 1]}…")
    if isinstance(content, Mapping):
        return f"inputs {', '.join(map(str, content))}"
    size = getattr(content, "shape", None) or getattr(content, "size", None)
    sides = " x ".join(map(str, size)) if isinstance(size, tuple) else ""
    return f"{type(content).__name__} {sides}".rstrip()


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Item:
    """One thing to explain: a text, a picture, or inputs already encoded."""

    id: str
    index: int  #: row in the dataset
    content: Any  #: str | PIL.Image | array (H, W, 3) | mapping of encoded inputs
    second_at: int | None = None  #: see `pairs`; of a pair given as a tuple it follows from that
    label: str | None = None  #: as the dataset spells it
    meta: Mapping[str, str] = field(default_factory=dict)
    source: str | None = None  #: image path relative to the dataset's root
    evidence: Evidence | None = None  #: None: nobody marked it
    annotations: tuple[Annotation, ...] = ()
    cluster: str = ""  #: items of one author, thread or text share it; "": a cluster of its own
    template: str = ""  #: minimal pairs share it; "": it has none

    @property
    def text(self) -> str | None:
        """The text, or both of a pair in one; None of a picture and the like."""
        return self.content if isinstance(self.content, str) else None

    @property
    def texts(self) -> tuple[str, ...]:
        """The single text, or the two of a pair; none of a picture and the like."""
        return texts_of(self.text, self.second_at)

    def paired(self) -> "Item":
        """The item with a tuple of two texts as a pair; any other as it is.

        Raises ItemError empty-text where one of the two is blank.
        """
        given = self.content
        if not isinstance(given, tuple) or [*map(type, given)] != [str, str]:
            return self
        check_pair(given)
        content, second_at = joined(*given)
        return replace(self, content=content, second_at=second_at)

    def __repr__(self) -> str:
        label = "" if self.label is None else f" label={self.label!r}"
        return f"<Item {self.id!r}{label}: {_shown(self.content)}>"


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemFailure:
    """An item that could not be explained, with a stable kind and a readable reason."""

    item_id: str
    index: int
    kind: str  #: empty-text | null | invalid-utf8 | malformed-row | bad-image | too-long | ...
    message: str
    #: where it was raised, see `error_frames`; "": nowhere, or not kept
    traceback: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What is explained, parsed against the model's class names but not yet against an item."""

    spec: str  #: as requested, e.g. `top:2`; part of a result's key
    kind: TargetKind
    plus: tuple[int, ...] = ()  #: class indices with coefficient +1
    minus: tuple[int, ...] = ()  #: class indices with coefficient -1
    k: int = 1  #: for `top`
    name: str = ""  #: class, contrast or classification name
    span: tuple[int, int] | None = None  #: for `span`: characters of the text, from and to


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedTarget:
    """A target for one item: which sum of logits is propagated."""

    spec: str
    rank: int  #: 0-based within the spec (top:k, all)
    class_index: int | None  #: None for contrasts and classifications
    class_name: str
    coefficients: tuple[tuple[int, float], ...]  #: (class index, coefficient)
    #: the output position of each coefficient's logit, of a model that answers at every position;
    #: empty: the model gives an item one row of logits
    positions: tuple[int, ...] = ()
    note: str = ""  #: what a reader of its explanation has to know


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchGrid:
    """The positions of a picture: `rows` x `cols` patches behind `prefix` special positions."""

    rows: int
    cols: int
    height: int  #: model input, pixels
    width: int
    prefix: int = 0
    #: left, top, right, bottom of what the model saw, as fractions of the original picture
    box: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)


def own_positions(
    features: Sequence[Token] | PatchGrid, width: int | None = None
) -> NDArray[np.bool_]:
    """(T,) which positions are an item's own content: not special, not padding.

    Args:
        features: what the positions are; of a picture the prefix (class token, registers) comes
            first.
        width: T with padding; default: as many as there are features.
    """
    if isinstance(features, PatchGrid):
        end = features.prefix + features.rows * features.cols
        own = np.zeros(end if width is None else width, dtype=bool)
        own[features.prefix : end] = True
        return own
    own = np.zeros(len(features) if width is None else width, dtype=bool)
    own[: len(features)] = ~Tokens.of(features).special
    return own


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Ledger:
    """Where every unit of the explained logit went, in logits; disjoint entries, no remainder."""

    inputs: float  #: non-special positions
    special: float  #: CLS, SEP, register and distillation positions
    embeddings: float  #: constants added before the encoder (position, type, class token)
    biases: float  #: constants of the operators
    rules: float  #: made (negative) or lost by rules that do not conserve
    total: float  #: sum of the five entries
    gap: float  #: logit minus total
    magnitude: float  #: sum of |terms|, the scale the gap is judged by
    biases_by_kind: Mapping[str, float] = field(default_factory=dict)
    rules_by_kind: Mapping[str, float] = field(default_factory=dict)

    @property
    def relative_gap(self) -> float:
        """|gap| / magnitude; 0 where nothing was propagated."""
        return abs(self.gap) / self.magnitude if self.magnitude else abs(self.gap)

    def __repr__(self) -> str:
        entries = ("inputs", "special", "embeddings", "biases", "rules", "total")
        entries_text = " ".join(f"{name}={getattr(self, name):.4g}" for name in entries)
        return f"<Ledger {entries_text} gap={self.gap:.1e}>"


@dataclass(frozen=True, kw_only=True, slots=True)
class Word:
    """Relevance of one word: the sum over its pieces, never the mean (additivity)."""

    text: str
    start: int
    end: int
    relevance: float


class _Pictured(Drawable):
    """Has room for a picture beside a record's own fields."""

    __slots__ = ("_picture",)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class Attribution(_Pictured):
    """The relevance of every position of one item for one target."""

    item_id: str
    method: str
    target: str  #: as requested
    rank: int
    class_index: int | None
    class_name: str
    logit: float  #: the explained (sum of) logit(s)
    relevance: NDArray[np.floating[Any]]  #: (T,) for text, (rows, cols) for images; signed
    unit: Unit
    at: str  #: the input layer at which relevance was measured
    features: Sequence[Token] | PatchGrid
    ledger: Ledger | None  #: None for methods without conservation
    text: str | None = None  #: original text
    second_at: int | None = None  #: see `pairs`
    prefix_relevance: tuple[float, ...] = ()  #: images: relevance of the special positions
    notes: tuple[str, ...] = ()  #: what a reader has to know besides the numbers
    #: class -> probability that the model gives it, the largest first, at most 20 and the explained
    #: class; empty: not known, as of what was stored
    probabilities: Mapping[str, float] = field(default_factory=dict)
    #: output positions whose logits are explained; empty: the model gives an item one row of them,
    #: or not known, as of what was stored
    positions: tuple[int, ...] = ()
    #: the text goes on where reading ended; False: it does not, or not known, as of what was stored
    truncated: bool = False

    @property
    def picture(self) -> Any:
        """The picture that was explained, as it was given; None: not known, or no picture.

        It is kept beside the record: neither copies nor exports nor pickles of it hold it.
        """
        return getattr(self, "_picture", None)

    def over(self, picture: Any) -> Self:
        """The same attribution, to be drawn over `picture`: a PIL image, an array or a path."""
        made = replace(self)
        object.__setattr__(made, "_picture", picture)
        return made

    def words(self) -> list[Word]:
        """Relevance summed over the word pieces of each word, in reading order."""
        if isinstance(self.features, PatchGrid):
            raise WrongKindError("words() is for texts; this attribution is of an image")
        tokens = Tokens.of(self.features)
        words: dict[int, tuple[str, int, int, float]] = {}
        columns = (tokens.words, tokens.starts, tokens.ends, self.relevance)
        rows = zip(tokens.texts, *(column.tolist() for column in columns), strict=True)
        for piece, word, start, end, value in rows:
            if word != NO_WORD:
                text, begin, _, summed = words.get(word, ("", start, end, 0.0))
                words[word] = (text + piece, begin, end, summed + value)
        whole = self.text
        return [
            Word(text=text if whole is None else whole[a:b], start=a, end=b, relevance=relevance)
            for text, a, b, relevance in words.values()
        ]

    def by_text(self) -> tuple[float, ...]:
        """Relevance of each text of the item, two of a pair: summed over its own tokens.

        Special tokens belong to none. Raises TypeError for an image.
        """
        if isinstance(self.features, PatchGrid):
            raise WrongKindError("by_text() is for texts; this attribution is of an image")
        own = own_positions(self.features)
        if self.second_at is None:
            return (float(self.relevance[own].sum()),)
        behind = Tokens.of(self.features).starts >= self.second_at
        return tuple(float(self.relevance[own & side].sum()) for side in (~behind, behind))

    def __repr__(self) -> str:
        if isinstance(self.features, PatchGrid):
            of = f"picture, {' x '.join(map(str, self.relevance.shape))} patches"
        else:
            of = f"{len(self.features)} tokens"
            if self.truncated:  # of a pair the longer text was cut
                read, whole = int(Tokens.of(self.features).ends.max()), len(self.text or "")
                figures = f": {read:,} of {whole:,} characters read" if read < whole else ""
                of += f" (truncated{figures})"
            of += "" if self.text is None else f": {_shown(self.text)}"
        return (
            f"<Attribution item={self.item_id!r} method={self.method} class={self.class_name!r} "
            f"logit={self.logit:.4g} {of}>"
        )

    def plot(self, image: Any = None, **options: Any) -> Any:
        """Bars for words, or a picture under its heatmap; see `te.plot`."""
        return draw("plot", self, image, **options)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class SimilarityAttribution(Drawable):
    """The relevance of every patch of a picture and every token of a text for their similarity.

    `picture` and `text` are attributions of one side each, to be drawn like any other; their
    `logit` is what is explained of the pair. Where there is a ledger, both sides and its other
    entries sum to that logit.
    """

    item_id: str
    method: str
    target: str  #: `similarity`, or `cosine`
    logit: float  #: what is explained: the similarity, or the cosine
    similarity: float  #: scale * cosine + bias, as the model itself computes it
    cosine: float  #: of the two vectors, -1 to 1
    picture: Attribution
    text: Attribution
    ledger: Ledger | None  #: of both sides together; None for methods without conservation

    @property
    def unit(self) -> str:
        """The unit of the relevance of both sides; see `Attribution.unit`."""
        return self.picture.unit

    @property
    def at(self) -> str:
        """The input layers at which relevance was measured, of the picture and of the text."""
        return " and ".join(dict.fromkeys((self.picture.at, self.text.at)))

    @property
    def class_name(self) -> str:
        """Return what is explained, where attributions of classifiers name a class."""
        return self.target

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what a reader of either side has to know besides its numbers."""
        return tuple(dict.fromkeys((*self.picture.notes, *self.text.notes)))

    def __repr__(self) -> str:
        return (
            f"<SimilarityAttribution item={self.item_id!r} method={self.method} of "
            f"{self.target}={self.logit:.4g}, {self.picture.relevance.size} patches and "
            f"{len(self.text.features)} tokens>"  # type: ignore[arg-type]
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """What one method says of one item, or why it says nothing."""

    method: str
    attributions: tuple[Attribution, ...]  #: one per target; empty where there is an error
    error: str | None  #: why the method is not defined here
    seconds: float  #: wall clock of this one item, alone in its batch


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemOutcome:
    """The model's prediction for one item; written once per item, whatever the targets."""

    item_id: str
    index: int
    label: str | None  #: class name where the dataset's label could be read as one
    predicted: str
    logits: tuple[float, ...]  #: (C,)
    truncated: bool
    positions: int  #: T without padding
    text: str | None = None
    second_at: int | None = None  #: see `pairs`
    source: str | None = None  #: image path relative to the dataset's root
    meta: Mapping[str, str] = field(default_factory=dict)
    raw_label: str | None = None  #: as the dataset spells it, whether or not it is a class

    @property
    def texts(self) -> tuple[str, ...]:
        """As they are stored: the single text, or the two of a pair; none: it has none."""
        return texts_of(self.text, self.second_at)


@dataclass(frozen=True, kw_only=True, slots=True)
class EntityGroup:
    """A named list of terms, with where they came from; no terms: the data says who is in it."""

    name: str
    terms: tuple[str, ...]
    source: str = ""
    entities: Mapping[str, str] = field(default_factory=dict)  #: term -> entity, if not itself
    ambiguous: Mapping[str, Ambiguity] = field(default_factory=dict)  #: terms that need a cue


@dataclass(frozen=True, kw_only=True, slots=True)
class Mention:
    """One occurrence of an entity in one item, for one explained target."""

    item_id: str
    target: str
    rank: int
    class_name: str
    group: str
    entity: str  #: the lexicon's spelling
    surface: str  #: as written in the text
    start: int
    end: int
    relevance: float  #: sum over its word pieces
