"""The demo's classifiers: quick ones for the plumbing, whole ones (slow) for what they learn."""

from pathlib import Path

import pytest

from transexplain.extras.demo import text_model
from transexplain.extras.demo.demo_run import run_demo


@pytest.fixture(scope="module")
def written() -> list[text_model.Letter]:
    return text_model.letters(240, seed=3)


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


# ---- the demo as a user runs it, and how often its verdict is right over training see -----------


@pytest.mark.exhaustive
def test_the_demo_ends_with_two_reports_and_the_right_verdict(tmp_path: Path) -> None:
    printed: list[str] = []
    assert run_demo(tmp_path, 0, say=printed.append)
    assert "was found; unbiased groups flagged: none; mention still open for: none" in printed[-1]
    assert len(list(tmp_path.glob("demo-letters-*.html"))) == 1
    assert len(list(tmp_path.glob("demo-digits-*.html"))) == 1
