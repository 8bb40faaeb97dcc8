"""Families of groups, and what each group is compared with."""

import pytest

from transexplain.analysis.groups.group_cells import Reference, family, references_of

GENDER = ("gender/female", "gender/male", "gender/neutral")
NATIONS = ("nationality/german", "nationality/french")


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("gender/female", "gender"),
        ("gender/female/old", "gender"),
        ("gender x age/female x old", "gender x age"),
        ("flowers", ""),
    ],
)
def test_a_family_is_what_stands_before_the_first_slash(group: str, expected: str) -> None:
    assert family(group) == expected


def test_a_group_is_compared_with_the_others_of_its_family() -> None:
    found = references_of(None, (*GENDER, *NATIONS))
    assert found["gender/female"] == Reference("all other groups of gender", GENDER[1:])
    assert found["nationality/german"] == Reference(
        "all other groups of nationality", ("nationality/french",)
    )


def test_where_there_is_one_family_it_need_not_be_named() -> None:
    assert references_of(None, GENDER)["gender/male"] == Reference(
        "all other groups", ("gender/female", "gender/neutral")
    )
    assert references_of(None, ("A", "B"))["A"] == Reference("all other groups", ("B",))


def test_groups_without_a_slash_are_one_family() -> None:
    found = references_of(None, ("A", "B", *NATIONS))
    assert found["A"] == Reference("all other groups without a family", ("B",))


def test_a_group_alone_in_its_family_is_compared_with_all_others_and_says_so() -> None:
    found = references_of(None, (*GENDER, "nationality/german"))["nationality/german"]
    assert (found.name, found.groups) == ("all other groups", GENDER)
    assert found.note == "its family has no other group, so against all other groups"


def test_a_group_that_is_alone_has_nobody_to_be_compared_with() -> None:
    assert references_of(None, ["A"])["A"] == Reference("all other groups", ())


def test_one_name_is_the_reference_of_all_families() -> None:
    found = references_of("gender/male", (*GENDER, *NATIONS))
    assert found["nationality/german"] == Reference("gender/male", ("gender/male",))
    assert found["gender/male"] == Reference("gender/male", ()), "the reference itself"


def test_a_mapping_names_the_reference_of_some_families() -> None:
    found = references_of({"gender": "gender/male"}, (*GENDER, *NATIONS))
    assert found["gender/neutral"] == Reference("gender/male", ("gender/male",))
    assert found["gender/male"] == Reference("gender/male", ())
    assert found["nationality/french"].name == "all other groups of nationality"
