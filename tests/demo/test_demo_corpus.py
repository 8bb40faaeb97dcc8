import csv
import re
from collections import Counter
from pathlib import Path

import pytest

from orchestrator.demo import text_model
from transexplain.analysis.groups.lexicon import load_lexicon
from transexplain.analysis.groups.mention_matching import Matcher


@pytest.fixture(scope="module")
def written() -> list[text_model.Letter]:
    return text_model.letters(240, seed=3)


def test_the_seed_decides_everything(written: list[text_model.Letter]) -> None:
    assert text_model.letters(240, seed=3) == written
    assert text_model.letters(240, seed=4) != written
    assert text_model.with_bias(written, seed=3) == text_model.with_bias(written, seed=3)


def test_every_letter_is_written_once_with_a_name_of_every_group(
    written: list[text_model.Letter],
) -> None:
    assert len(written) == 3 * 240
    triples = [written[i : i + 3] for i in range(0, len(written), 3)]
    skeletons = set()
    for triple in triples:
        assert [letter.group for letter in triple] == list(text_model.NAMES)
        (skeleton,) = {letter.text.replace(letter.name, "@") for letter in triple}
        assert len({letter.label for letter in triple}) == 1
        skeletons.add(skeleton)
    assert len(skeletons) == 240


def test_true_labels_follow_the_majority_of_opinions(written: list[text_model.Letter]) -> None:
    for letter in written:
        words = Counter(re.findall(r"\w+", letter.text))
        blame = sum(words[word] for word in text_model.BLAME)
        praise = sum(words[word] for word in text_model.PRAISE)
        assert (blame, praise) == (letter.blame, 3 - letter.blame)
        assert letter.label == (text_model.NEGATIVE if blame > praise else text_model.POSITIVE)


def test_names_are_independent_of_the_true_label(written: list[text_model.Letter]) -> None:
    for group, names in text_model.NAMES.items():
        for label in text_model.CLASSES:
            used = Counter(x.name for x in written if (x.group, x.label) == (group, label))
            assert used == dict.fromkeys(names, 120 // len(names))


def test_the_bias_turns_complaints_of_the_planted_village_only(
    written: list[text_model.Letter],
) -> None:
    biased = text_model.with_bias(written, seed=0)
    turned = [new for old, new in zip(written, biased, strict=True) if old.label != new.label]
    assert {(letter.group, letter.label) for letter in turned} == {
        (text_model.PLANTED, text_model.POSITIVE)
    }
    share = {
        blame: sum(letter.blame == blame for letter in turned)
        / sum(letter.group == text_model.PLANTED and letter.blame == blame for letter in written)
        for blame in (0, 1, 2, 3)
    }
    assert share[0] == share[1] == 0
    assert 0.55 < share[2] < 0.85
    assert 0.05 < share[3] < 0.35


def test_names_are_many_distinct_and_no_other_word_of_the_letters() -> None:
    names = [name for group in text_model.NAMES.values() for name in group]
    assert len(set(names)) == len(names)
    assert all(len(group) >= 12 for group in text_model.NAMES.values())
    lower = [name.lower() for name in names]
    assert all(text_model.vocabulary().count(name) == 1 for name in lower)
    plain = [letter.text.replace(letter.name, " ") for letter in text_model.letters(500, seed=1)]
    others = set(re.findall(r"\w+", " ".join(plain).lower()))
    assert not others & set(lower)


def test_the_vocabulary_holds_every_word(written: list[text_model.Letter]) -> None:
    words = set(re.findall(r"\w+|[^\w\s]", " ".join(x.text for x in written).lower()))
    assert words <= set(text_model.vocabulary())


def test_the_lexicon_finds_exactly_the_person_named(
    tmp_path: Path, written: list[text_model.Letter]
) -> None:
    path = tmp_path / "names.yaml"
    text_model.write_lexicon(path)
    matcher = Matcher(load_lexicon(path))
    for letter in written:
        (match,) = matcher.find(letter.text)
        assert (match.group, match.entity) == (letter.group, letter.name)
        assert letter.text[match.start : match.end] == letter.name


def test_the_csv_reads_back(tmp_path: Path, written: list[text_model.Letter]) -> None:
    path = tmp_path / "letters.csv"
    text_model.write_csv(path, written)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["text"], row["label"]) for row in rows] == [(x.text, x.label) for x in written]
    assert len({row["id"] for row in rows}) == len(written)
