"""Words of a class weighted by rarity, and what classes share."""

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_samples import CLASSES, Visible, biased_run, explained_text, stored_run

from transexplain.reports.report_formats import render_html
from transexplain.reports.sections.class_views import ClassView
from transexplain.reports.summary import summarise
from transexplain.store.database import Database

WORDS = ("good", "Ann", "tea", "x")


def predicted_run(db: Database, texts: list[str]) -> str:
    """Texts explained for the class that the made-up model answers, under one target."""
    explained = []
    for index, text in enumerate(texts):
        outcome, attribution = explained_text(index, text, None)
        place = CLASSES.index(outcome.predicted)
        one = replace(
            attribution, target="predicted", class_name=outcome.predicted, class_index=place
        )
        explained.append((outcome, one))
    return stored_run(db, explained, targets=("predicted",))


def views_of(db: Database, texts: list[str]) -> dict[str, ClassView]:
    return {one.class_name: one for one in summarise(db, predicted_run(db, texts)).classes}


def test_the_rarity_counts_texts_of_all_classes(db: Database) -> None:
    found = views_of(
        db, ["good the", "good the", "sad the", "sad the", "sad good good bad bad the"]
    )
    rare = {word.word: word for word in found["positive"].rare}
    assert rare["good"].rarity == pytest.approx(math.log(5 / 3))
    assert rare["good"].score == pytest.approx(1.0 * math.log(5 / 3))
    assert rare["good"].documents == 2  # of its own class
    assert "the" not in rare  # in every text: it says nothing


def test_rarity_can_turn_the_order_of_words_around(db: Database) -> None:
    often = ["good today"] * 9 + ["good Ann"] * 3  # Ann adds half of what good does, but is rare
    view = views_of(db, often)["positive"]
    assert [word.word for word in view.raising_by_mean][:2] == ["good", "ann"]
    assert view.rare[0].word == "ann"
    assert "good" not in [word.word for word in view.rare]
    assert view.rare_shared is None  # there is no other class


def test_words_that_lower_the_class_are_left_out(db: Database) -> None:
    view = summarise(db, biased_run(db)).classes[0]
    assert {word.word for word in view.lowering_by_mean} == {"bad"}
    assert "bad" not in {word.word for word in view.rare}


def test_shared_words_name_the_other_class(db: Database) -> None:
    found = views_of(db, ["good chess"] * 2 + ["dull chess"] * 2 + ["dull golf"] * 2 + ["dull"] * 2)
    positive, negative = found["positive"], found["negative"]
    assert {w.word: w.also for w in positive.rare} == {"good": (), "chess": ("negative",)}
    assert positive.rare_shared == 0.5
    assert [(o.class_name, o.share) for o in positive.rare_overlap] == [("negative", 0.5)]
    assert negative.rare_shared == pytest.approx(1 / 3)  # dull, chess, golf


def test_targets_of_another_kind_are_no_other_class(db: Database) -> None:
    explained = []
    for index in range(4):
        outcome, one = explained_text(index, ("good chess", "good golf")[index % 2], None)
        twice = replace(one, target="predicted", class_name=outcome.predicted)
        explained.append(
            (outcome, replace(twice, target=("predicted", "class:positive")[index // 2]))
        )
    run = stored_run(db, explained, targets=("predicted", "class:positive"))
    assert [view.rare_shared for view in summarise(db, run).classes] == [None, None]


def test_the_page_shows_the_table_and_the_formula(db: Database) -> None:
    run = predicted_run(db, ["good chess"] * 2 + ["dull chess"] * 2 + ["dull golf"] * 2)
    text = Visible(render_html(summarise(db, run))).text
    assert "words weighted by rarity" in text and "ln(N / documents)" in text
    assert "Also a top word of" in text


@pytest.mark.exhaustive
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), min_size=1, max_size=12))
def test_scores_are_positive_ordered_and_shares_are_shares(
    db: Database, texts: list[list[str]]
) -> None:
    found = views_of(db, [" ".join(words) for words in texts])
    for view in found.values():
        scores = [word.score for word in view.rare]
        assert scores == sorted(scores, reverse=True) and all(score > 0 for score in scores)
        best = max((one.share for one in view.rare_overlap), default=0.0)
        assert view.rare_shared is None or best <= view.rare_shared <= 1.0
