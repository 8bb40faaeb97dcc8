"""Token overlap: how many top words of one class are top words of another class, too.

Hou and Castanon 2023, section 3.2: the relevance of a word is summed over all texts of a predicted
class and weighted by how rare the word is in everyday language, its inverse document frequency in a
reference corpus; the top words of every class should be other words than those of the others. With
`reference` that is what is computed, of words in lower case where the paper has word pieces.
Without, the items themselves are the corpus, and what every class is full of heads a class.
Classes about different things differ in their words whatever is explained, so a value is read
beside that of random relevance on the same items.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations
from math import expm1, fsum, log, log1p
from pathlib import Path
from typing import Any

import numpy as np

from transexplain.data.source_files import file_digest
from transexplain.data.table_source import FileSource
from transexplain.errors import ConfigurationError, DataSourceError, installing, reason_of
from transexplain.evaluating.metrics.metric_table import Case, Scored, unmeasured
from transexplain.files.paths import local_path
from transexplain.types.plans import DatasetSpec

Rarity = Callable[[str], float]

WORDFREQ = "wordfreq:"
#: words of the document that a frequency is turned into a share of documents for: the length of
#: an article, as the documents of Hou and Castanon are
DOCUMENT = 500
#: a word that the table does not have is as rare as its rarest
_RAREST = 1e-8
#: runs of letters and digits, or one other visible character, as BERT's tokenizer parts a text
_PIECE = re.compile(r"\w+|[^\w\s]")


def planned_reference(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with the absolute path of a reference and what distinguishes its content.

    `reference_version` is the sha256 of a file, or the version of wordfreq. Without `reference`
    they stay as they are. Raises ConfigurationError where there is no such reference.
    """
    reference = params.get("reference")
    if reference is None:
        return dict(params)
    if not isinstance(reference, str) or not reference:
        raise ConfigurationError(
            f"reference is {reference!r}; write wordfreq:en, or FILE#COLUMN of texts of your own"
        )
    if not reference.startswith(WORDFREQ):
        path, mark, column = reference.partition("#")
        reference = f"{local_path(path).absolute()}{mark}{column}"
    version = _version(reference)
    _require(reference, params.get("reference_version"), version)
    rarity_in(reference, version)
    return {**params, "reference": reference, "reference_version": version}


@cache
def rarity_in(reference: str, version: str | None = None) -> Rarity:
    """Word in lower case -> its inverse document frequency, natural logarithm.

    Of texts of one's own it is log(N / n): n of all N documents hold the word; one that none holds
    counts as if one did. Of wordfreq, n / N is the chance that a document of `DOCUMENT` words holds
    a word of this frequency. Punctuation has none in wordfreq's table and is worth 0. A word that
    a tokenizer joins of several (`well-known`) is as rare as its rarest part.

    Raises:
        ConfigurationError: the reference cannot be read, or its content is not `version`.
    """
    _require(reference, version, _version(reference))
    return _wordfreq(reference) if reference.startswith(WORDFREQ) else _own(reference)


def _require(reference: str, wanted: Any, version: str) -> None:
    if wanted not in (None, version):
        raise ConfigurationError(
            f"reference {reference} is not the one of the plan: it is {version[:12]}, planned "
            f"{str(wanted)[:12]}; put that one back, or plan the run again"
        )


def _version(reference: str) -> str:
    if reference.startswith(WORDFREQ):
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("wordfreq")
        except PackageNotFoundError:
            raise ConfigurationError(
                f"reference is {reference}, and the package wordfreq is not installed: "
                f"{installing('frequencies')}, on every worker too; or name texts of your own, "
                "FILE#COLUMN"
            ) from None
    path = reference.partition("#")[0]
    try:
        return file_digest(Path(path))
    except (OSError, ValueError) as error:
        why = reason_of(error) if isinstance(error, OSError) else str(error)
        raise ConfigurationError(
            f"reference {path} cannot be read: {why}; write wordfreq:en, or FILE#COLUMN of texts "
            "of your own, where every worker can read it"
        ) from None


def _wordfreq(reference: str) -> Rarity:
    from wordfreq import available_languages, word_frequency

    language = reference.removeprefix(WORDFREQ)
    if language not in (known := sorted(available_languages())):
        raise ConfigurationError(
            f"reference is {reference}, and wordfreq has no language {language!r}; it has "
            f"{', '.join(known)}"
        )

    @cache
    def rarity(word: str) -> float:
        if not any(map(str.isalnum, word)):
            return 0.0
        frequency = max(_RAREST, float(word_frequency(word, language)))
        return -log(-expm1(DOCUMENT * log1p(-frequency)))

    return rarity


def _own(reference: str) -> Rarity:
    path, _, column = reference.partition("#")
    holding: Counter[str] = Counter()
    documents = 0
    try:
        spec = DatasetSpec(source=path, text=column or None)
        for record in FileSource(spec, path).records():
            if record.content is not None:
                documents += 1
                holding.update(set(_PIECE.findall(record.content.lower())))
    except DataSourceError as error:
        raise ConfigurationError(f"reference {reference}: {error}") from None
    if not holding:
        raise ConfigurationError(f"reference {reference} holds no texts; name another file")

    def rarity(word: str) -> float:
        parts = _PIECE.findall(word) or [word]
        return max(log(documents / max(1, holding[part])) for part in parts)

    return rarity


#: how many words are listed for each class, the axis of the curve
COUNTS = (5, 10, 20, 30, 40, 50, 75, 100)
#: words of each class among which those that two classes share are named, as in tables 3 to 9
LISTED = 50
_KEPT = 20  #: words of an item, without a reference


def token_overlap(
    case: Case,
    *,
    keep: int | None = None,
    reference: str | None = None,
    reference_version: str | None = None,
) -> Scored:
    """The words of one item for `overlap`; the item alone has no value.

    The detail holds its class, its distinct words in lower case, those of most relevance first,
    and the relevance of the first `keep` (the sum over all places where a word stands). Without a
    reference, words of no or negative relevance are listed, but none is kept, and `keep` is 20;
    with one, all words are kept with their sign, and their rarity there is beside.

    Args:
        case: of a text.
        keep: words of the item that count; None: 20, or all with a reference.
        reference: `wordfreq:en`, or `FILE#COLUMN` of texts; see `rarity_in`.
        reference_version: its sha256 or version, which a plan has.

    Raises:
        ConfigurationError: `keep` is no number of words, or the reference cannot be read.
    """
    if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int) or keep < 1):
        raise ConfigurationError(f"keep is a whole number of at least 1, not {keep!r}")
    sums: dict[str, float] = defaultdict(float)
    for word in case.attribution.words():
        sums[word.text.strip().lower()] += word.relevance
    ordered = sorted(sums, key=lambda word: (-sums[word], word))
    if not ordered:
        return unmeasured("the item comes without words")
    detail: dict[str, Any] = {"class": case.attribution.class_name, "words": ordered}
    if reference is None:
        first = ordered[: keep or _KEPT]
        return Scored(
            value=None, detail={**detail, "relevance": [sums[w] for w in first if sums[w] > 0]}
        )
    rarity = rarity_in(reference, reference_version)
    first = ordered[:keep]
    return Scored(
        value=None,
        detail={
            **detail,
            "relevance": [sums[word] for word in first],
            "rarity": [rarity(word) for word in first],
        },
    )


def overlap(details: Sequence[Mapping[str, Any]]) -> Scored:
    """The mean share of words that the lists of two classes have in common, lower is better.

    A word's score for a class is the sum of its kept relevance over the items of that class, times
    its rarity. Where the details have none, it is log(N / n): n of all N items hold the word, and
    words of one item alone are left out: no two classes can share them, and as the rarest they
    would fill every list, whatever the method. At each of COUNTS the list of a class is its first k
    words of positive score, and the share is that of the shorter list of a pair (a class may have
    fewer than k words; where all have k, the mean over pairs is the paper's sum over pairs by
    C (C - 1) / 2 times k). The curve is the mean over the pairs of classes that have words, the
    value the mean of the curve. The detail holds the first `LISTED` words of every class with
    their scores and, of every pair, those that both list. Details without words (items that
    failed) are left out.
    """
    given = [detail for detail in details if detail.get("words")]
    weighed = bool(given) and all("rarity" in detail for detail in given)
    scores = _scores(given, _rarity(given) if weighed else _rarity_here(given))
    lists = {name: _listed(of) for name, of in scores.items()}
    if len(lists) < 2:
        several = "" if weighed else " that stand in several items"
        return unmeasured(f"fewer than two classes have words{several}")
    pairs = list(combinations(lists, 2))
    curve = tuple(
        float(np.mean([_share(lists[left][:count], lists[right][:count]) for left, right in pairs]))
        for count in COUNTS
    )
    first = {name: words[:LISTED] for name, words in lists.items()}
    shared = [
        {"classes": [left, right], "words": [word for word in first[left] if word in first[right]]}
        for left, right in pairs
    ]
    weights = {name: [scores[name][word] for word in words] for name, words in first.items()}
    return Scored(
        value=float(np.mean(curve)),
        curve=curve,
        detail={"lists": first, "scores": weights, "shared": shared},
    )


def _rarity(details: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Word -> its rarity in the reference."""
    return {
        word: rarity
        for detail in details
        for word, rarity in zip(detail["words"], detail["rarity"], strict=False)
    }


def _rarity_here(details: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Word of several items -> its rarity among these items."""
    holding = Counter(word for detail in details for word in detail["words"])
    return {word: log(len(details) / n) for word, n in holding.items() if n > 1}


def _scores(
    details: Iterable[Mapping[str, Any]], rarity: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """Per class its words of positive score; classes without any are left out."""
    kept: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for detail in details:
        for word, relevance in zip(detail["words"], detail["relevance"], strict=False):
            kept[detail["class"]][word].append(relevance)
    frequencies = {}
    for name in sorted(kept):
        # exact sums: the order of the items makes no difference
        scores = {
            word: fsum(given) * rarity[word] for word, given in kept[name].items() if word in rarity
        }
        frequencies[name] = {word: score for word, score in scores.items() if score > 0}
    return {name: scores for name, scores in frequencies.items() if scores}


def _listed(scores: Mapping[str, float]) -> list[str]:
    """The words, best first."""
    return sorted(scores, key=lambda word: (-scores[word], word))


def _share(words: Sequence[str], other: Sequence[str]) -> float:
    return len(set(words) & set(other)) / min(len(words), len(other))
