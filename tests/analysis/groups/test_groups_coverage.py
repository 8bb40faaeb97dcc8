"""Words that a lexicon of names lacks: which are candidates, and what the record of one says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_records import new_plan

from transexplain.analysis.groups.answers import Answer
from transexplain.analysis.groups.counterfactuals import Observation
from transexplain.analysis.groups.mention_coverage import (
    LEAST,
    MOST,
    CandidateCounts,
    _is_edit,
    candidate_table,
    other_spellings,
    spelling_table,
)
from transexplain.analysis.groups.mention_matching import Matcher
from transexplain.types.findings import Practical
from transexplain.types.items import EntityGroup
from transexplain.types.plans import (
    AuditPlan,
    CandidateWord,
    CheckPlan,
    Matching,
    ModelRef,
    PrivacyPlan,
)

GROUPS = (
    EntityGroup(name="n/a", terms=("Jamal", "Rosita", "Jose")),
    EntityGroup(name="n/b", terms=("Emily", "Harold")),
)
PLAN = new_plan(
    name="p",
    model=ModelRef(source="m", classes=("no", "yes")),
    groups=GROUPS,
    matching=Matching(match="exact"),
)


def candidates(texts: list[tuple[str, str]], plan: AuditPlan = PLAN) -> tuple[CandidateWord, ...]:
    """Of texts with their labels."""
    counts, matcher = CandidateCounts(plan), Matcher(plan.groups, plan.matching)
    for text, label in texts:
        counts.add(text, (label, ""), matcher.find(text))
    return counts.candidates(100, 1.0)


def words(*texts: str) -> dict[str, str]:
    """Candidate -> group, of texts that come `LEAST` times each."""
    return {one.word: one.group for one in candidates([(text, "") for text in texts * LEAST])}


def test_a_pronoun_of_one_group_alone_is_associated_with_it() -> None:
    assert words("Jamal and he", "Emily and she", "it") == {"he": "n/a", "she": "n/b"}
    assert words("Jamal and he", "Emily and he") == {}
    assert words("Jamal, Emily and he") == {}, "both are mentioned"
    few = [("Jamal and he", "")] * (LEAST - 1) + [("Emily", "")] * 50
    assert candidates(few) == ()


def test_titles_have_a_capital() -> None:
    assert words("Miss Emily", "Jamal") == {"miss": "n/b"}
    assert words("I miss Emily", "Jamal") == {}


def test_what_the_label_explains_is_no_association() -> None:
    """The pronoun goes along with the label, and the label with the group."""
    texts = [("Jamal he", "yes")] * 80 + [("Jamal", "no")] * 20
    texts += [("Emily he", "yes")] * 20 + [("Emily", "no")] * 80
    assert candidates(texts) == ()
    assert [one.word for one in candidates([(text, "") for text, _ in texts])] == ["he"]


def test_without_names_or_another_group_nothing_is_counted() -> None:
    small = replace(PLAN, groups=(EntityGroup(name="g/x", terms=("she",)), GROUPS[1]))
    assert CandidateCounts(small).is_needed
    assert not CandidateCounts(replace(PLAN, groups=small.groups[:1])).is_needed
    assert not CandidateCounts(replace(PLAN, groups=GROUPS[:1])).is_needed


def test_spellings_are_an_edit_or_an_accent_away_from_names_of_one_group() -> None:
    assert words("Jamall came", "so did José", "and Emilly") == {
        "jamall": "n/a",
        "josé": "n/a",
        "emilly": "n/b",
    }
    assert words("a nose", "Nose", "Jamila", "rosita's Rosita", "Josef") == {}, "short, far, small"
    both = (*GROUPS, EntityGroup(name="n/c", terms=("Jamala",)))
    assert candidates([("Jamall", "")] * LEAST, replace(PLAN, groups=both)) == (), "of two groups"
    private = replace(PLAN, privacy=PrivacyPlan(store_text="none"))
    assert candidates([("Jamall", "")] * LEAST, private) == (), "a plan would hold the word"


def test_candidates_are_bounded() -> None:
    names = [f"Name{chr(97 + i)}{chr(97 + j)}xy" for i in range(6) for j in range(6)]
    plan = replace(PLAN, groups=(EntityGroup(name="n/a", terms=tuple(names)), GROUPS[1]))
    assert len(candidates([(f"{one}z came", "") for one in names] * LEAST, plan)) == MOST


@pytest.mark.exhaustive
def test_associations_by_chance_are_as_rare_as_they_should_be() -> None:
    random = np.random.default_rng(5)
    pronouns, wrong = ("he", "she", "they", "his", "her", "Dr", "them", "Mrs"), 0
    for _ in range(300):
        texts = []
        for name in ("Jamal", "Emily"):
            for _ in range(100):
                some = [one for one in pronouns if random.random() < 0.3]
                texts.append((" ".join((name, *some)), "yes" if random.random() < 0.5 else "no"))
        wrong += bool(candidates(texts))
    assert wrong <= 300 * 0.05 + 3 * (300 * 0.05 * 0.95) ** 0.5


@given(st.text("abc", min_size=1, max_size=6), st.text("abc", min_size=1, max_size=6))
def test_an_edit_is_one_letter_more_less_or_other(one: str, other: str) -> None:
    letters = "abc"
    near = {one[:i] + one[i + 1 :] for i in range(len(one))}
    near |= {one[:i] + new + one[i + 1 :] for i in range(len(one)) for new in letters}
    near |= {one[:i] + new + one[i:] for i in range(len(one) + 1) for new in letters}
    assert _is_edit(one, other) == (other in near)


ANSWER = Answer(name="yes", plus=(1,), minus=(0,))


def pair(number: int, effect: float, cluster: str = "") -> list[Observation]:
    first = Observation(document=str(number), group="n/b", entity="she", cluster=cluster, own=True)
    return [
        replace(first, log_odds=(effect,)),
        replace(first, own=False, log_odds=(0.0,)),
    ]


PLANNED = CandidateWord(word="she", group="n/b", reference="n/a", texts=9, association=2.0)
CHECK = CheckPlan(share=1.0, candidates=(PLANNED,))


def test_the_effect_is_clustered_by_text() -> None:
    values = [-0.5, -0.4, -0.3, -0.6, -0.45, -0.5]
    found = [one for i, value in enumerate(values) for one in pair(i, value)]
    (row,) = candidate_table(found, CHECK, (ANSWER,))
    (effect,) = row.effects
    error = np.std(values, ddof=1) / 6**0.5
    assert effect.effect == pytest.approx(np.mean(values))
    assert effect.interval is not None and effect.interval[1] == pytest.approx(
        np.mean(values) + 2.570582 * error, abs=1e-5
    )
    assert (row.word, row.reference, row.texts, row.line) == ("she", "n/a", 6, "- she")
    assert row.beyond(Practical(logit=0.1, probability=1.0))
    assert row.beyond(Practical(logit=1.0, probability=0.02))
    assert not row.beyond(Practical(logit=1.0, probability=0.5))
    alike = [one for i, value in enumerate(values) for one in pair(i, value, "c")]
    (row,) = candidate_table(alike, CHECK, (ANSWER,))
    assert row.effects[0].interval is None and not row.beyond(Practical())


def test_a_number_has_no_probability_and_an_untried_candidate_no_effect() -> None:
    found = [one for i in range(6) for one in pair(i, -0.3)]
    (row,) = candidate_table(found, CHECK, (Answer(name="score", plus=(0,), minus=()),))
    assert row.effects[0].probability is None
    assert not row.beyond(Practical(logit=1.0, probability=0.02))
    (row,) = candidate_table([], CHECK, (ANSWER,))
    assert (row.texts, row.effects, row.beyond(Practical())) == (0, (), False)
    assert candidate_table([], None, (ANSWER,)) == []


def test_spellings_by_entity_are_bounded_and_most_frequent_first() -> None:
    counts = {("g", "A", f"A{i}"): i for i in range(1, 9)} | {
        ("g", "B", "B"): 2,
        ("h", "A", "A"): 9,
    }
    assert spelling_table(counts, "g", 1, 2) == {"A": {"A8": 8, "A7": 7}}
    assert spelling_table(counts, "g", 5, 1) == {"A": {"A8": 8}, "B": {"B": 2}}


def test_swaps_know_the_accents_of_texts_and_no_other_spellings() -> None:
    folded = replace(PLAN, matching=Matching())
    seen = {("Jose", "Jose"): 1, ("Jose", "José"): 2, ("Jose", "JOSÉ"): 1, ("Emily", "EMILY"): 4}
    assert other_spellings(folded, seen) == {"Jose": {"Jose": 1, "José": 3}}
    assert other_spellings(PLAN, seen) == {}
    assert other_spellings(replace(folded, privacy=PrivacyPlan(store_text="none")), seen) == {}
