"""What matching of entities costs: the tree over words, and an automaton of a library.

    python -m benchmarks.matching --lexicon FILE [--lexicon ...] --texts FILE [--rounds N]

`--texts` is a TSV whose last column is the text (plain or .gz, first line skipped). Printed are
texts/s of cutting texts into words (which both need), of the tree that TransExplain uses, and of
pyahocorasick on the same words (where it is installed), and whether the two find the same. Each
round runs each contender once; a figure is the median over the rounds.
"""

import argparse
import gzip
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from transexplain.analysis.groups.lexicon import load_lexicon
from transexplain.analysis.groups.mention_matching import Matcher
from transexplain.analysis.groups.word_pieces import WordPiece, pieces
from transexplain.types.items import EntityGroup
from transexplain.types.plans import Matching

#: (start, end, group) of every match
Spans = list[tuple[int, int, int]]


class AutomatonMatcher:
    """The same search by pyahocorasick: words are framed, so that matches end where words do.

    A word is written as its separator (space, or unit separator where none stood before it), a
    mark, its key and a mark; a term begins at its first mark. Capitals, longest match and
    overlaps are settled afterwards, as in `Matcher`.
    """

    def __init__(self, groups: Sequence[EntityGroup]) -> None:
        import ahocorasick

        self._groups = len(groups)
        terms: dict[str, list[tuple[int, int, tuple[frozenset[int], ...]]]] = {}
        for index, group in enumerate(groups):
            for term in group.terms:
                words = pieces(term)
                forms = [words]
                if any(word.key == "-" for word in words[1:-1]):
                    forms.append([*pieces(term.replace("-", " "))])
                for form in forms:
                    capitals = tuple(word.capitals for word in form)
                    entry = (index, len(form), capitals)
                    terms.setdefault(_framed(form)[1:], []).append(entry)
        self._automaton = ahocorasick.Automaton()
        for key, entries in terms.items():
            entries.sort(key=lambda entry: sum(map(len, entry[2])))
            self._automaton.add_word(key, entries)
        self._automaton.make_automaton()

    def find(self, text: str) -> Spans:
        """As `Matcher.find`, with every ambiguous term kept."""
        found = pieces(text)
        ends, at = {}, -1
        for place, piece in enumerate(found):
            at += len(piece.key) + 3
            ends[at] = place
        best: dict[tuple[int, int], int] = {}
        for end, entries in self._automaton.iter(_framed(found)):
            last = ends[end]
            for group, length, capitals in entries:
                window = found[last - length + 1 : last + 1]
                if all(n <= p.capitals for n, p in zip(capitals, window, strict=True)):
                    key = (last - length + 1, group)
                    best[key] = max(last, best.get(key, 0))
        free_from = [0] * self._groups
        spans = []
        for (first, group), last in sorted(best.items()):
            if found[first].start >= free_from[group]:
                free_from[group] = found[last].end
                spans.append((found[first].start, found[last].end, group))
        return sorted(spans)


def _framed(words: Sequence[WordPiece]) -> str:
    return "".join(f"{' ' if w.spaced else chr(31)}{chr(30)}{w.key}{chr(29)}" for w in words)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lexicon", action="append", required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    groups = [group for source in options.lexicon for group in load_lexicon(source)]
    texts = _read(options.texts)
    ours = Matcher(groups, Matching(ambiguous="always"))
    contenders: dict[str, Callable[[str], object]] = {
        "words alone": pieces,
        "tree over words": ours.find,
        "tree, cues for ambiguous terms": Matcher(groups).find,
    }
    try:
        theirs = AutomatonMatcher(groups)
    except ImportError:
        print("pyahocorasick is not installed: `pip install pyahocorasick` to compare with it")
    else:
        contenders["pyahocorasick over words"] = theirs.find
        _compare(groups, ours, theirs, texts)
    terms = sum(len(group.terms) for group in groups)
    print(f"{len(texts)} texts, {len(groups)} groups, {terms} terms, {options.rounds} rounds")
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(options.rounds):
        for name, find in contenders.items():
            begun = time.perf_counter()
            for text in texts:
                find(text)
            seconds[name].append(time.perf_counter() - begun)
    for name, taken in seconds.items():
        print(f"{name:32} {len(texts) / statistics.median(taken):10,.0f} texts/s")


def _compare(
    groups: Sequence[EntityGroup], ours: Matcher, theirs: AutomatonMatcher, texts: Sequence[str]
) -> None:
    index = {group.name: place for place, group in enumerate(groups)}
    different = matches = 0
    for text in texts:
        mine = sorted((m.start, m.end, index[m.group]) for m in ours.find(text))
        matches += len(mine)
        different += mine != theirs.find(text)
    print(f"{matches} matches; the two differ on {different} texts")


def _read(path: Path) -> list[str]:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return [line.rsplit("\t", 1)[-1] for line in text.removesuffix("\n").split("\n")[1:]]


if __name__ == "__main__":
    main()
