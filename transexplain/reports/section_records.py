"""What a report says about the audit itself: frozen records of plain values."""

from dataclasses import dataclass

from transexplain.bias.sheet import Precision


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
