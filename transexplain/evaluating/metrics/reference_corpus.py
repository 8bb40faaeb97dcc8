"""How rare a word is in a reference corpus: its inverse document frequency there.

A reference is `wordfreq:LANGUAGE`, the table of everyday frequencies of the package wordfreq, or a
user's own texts, `FILE#COLUMN`. Both are read in full by every process, once.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from math import expm1, log, log1p
from pathlib import Path
from typing import Any

from transexplain.data.source_files import file_digest
from transexplain.data.table_source import FileSource
from transexplain.errors import ConfigurationError, DataSourceError, installing, reason_of
from transexplain.local_paths import local_path
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
    found = _version(reference)
    _require(reference, params.get("reference_version"), found)
    rarity_in(reference, found)
    return {**params, "reference": reference, "reference_version": found}


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


def _require(reference: str, wanted: Any, found: str) -> None:
    if wanted not in (None, found):
        raise ConfigurationError(
            f"reference {reference} is not the one of the plan: it is {found[:12]}, planned "
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
