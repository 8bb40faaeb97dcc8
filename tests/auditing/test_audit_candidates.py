"""Words that a lexicon may lack: what replaces them, and what is left without."""

import pytest
from plain_records import new_plan

from transexplain.analysis.groups.word_pieces import pieces
from transexplain.auditing.candidate_words import CandidateCheck
from transexplain.types.items import EntityGroup, Item
from transexplain.types.plans import CandidateWord, CheckPlan, ModelRef

PLAN = new_plan(
    name="p",
    model=ModelRef(source="m", classes=("no", "yes")),
    groups=(
        EntityGroup(name="n/a", terms=("Jose",)),
        EntityGroup(name="n/b", terms=("Emily",)),
    ),
)


@pytest.mark.parametrize(
    ("word", "text", "left"),
    [
        ("she", "She saw her; SHE left", "He saw her; HE left"),
        ("her", "Her brother saw her.", "His brother saw him."),
        ("mrs", "Mrs. Emily and Mrs Ann", "Mr. Emily and Mr Ann"),
        ("mr", "Mr Jose", "Mrs Jose"),
        ("dr", "So Dr. Emily and Dr Ann met", "So Emily and Ann met"),
        ("they", "Emily said they left, they did", "Emily said left, did"),
        ("miss", "I miss Emily", None),
        ("they", "They", ""),
    ],
)
def test_partners_take_its_place_and_other_words_are_ablated(
    word: str, text: str, left: str | None
) -> None:
    assert changed(CandidateWord(word=word, group="n/b", reference="n/a", texts=9), text) == left


def test_a_spelling_gives_way_to_a_name_of_the_reference() -> None:
    spelling = CandidateWord(word="josé", group="n/a", reference="n/b", entity="Jose", texts=9)
    assert changed(spelling, "José and JOSÉ, not josé") == "Emily and Emily, not josé"
    assert changed(spelling, "josé") is None


def changed(candidate: CandidateWord, text: str) -> str | None:
    check = CandidateCheck(PLAN, CheckPlan(share=1.0, candidates=(candidate,)))
    found = check._changed(Item(id="i", index=0, content=text), candidate, pieces(text))
    return None if found is None else str(found.content)
