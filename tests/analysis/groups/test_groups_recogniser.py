"""Mentions by a recogniser: a function of one's own, spaCy, GLiNER; what is missing, and bad."""

import importlib.util
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from entity_recognisers import PEOPLE, save_ruler
from store_samples import make_plan

from transexplain.analysis.groups.entity_finder import EntityFinder
from transexplain.analysis.groups.entity_recogniser import (
    Recognised,
    absolute_recogniser,
    open_recogniser,
    planned_recogniser,
    recognised_groups,
    recogniser_of,
)
from transexplain.analysis.groups.mention_matching import Match, Matcher
from transexplain.errors import ConfigurationError, ItemError
from transexplain.types.items import EntityGroup, Item
from transexplain.types.plans import AuditPlan, Matching

needs_spacy = pytest.mark.skipif(
    importlib.util.find_spec("spacy") is None,
    reason="spaCy is not installed: the extra `ner` has it",
)
TEXT = "Why did Ann Lee leave Iceland for ann's Finland?"


def plan_with(source: str, types: Any = None, *groups: EntityGroup, **matching: Any) -> AuditPlan:
    recogniser = planned_recogniser(source, types)
    return replace(
        make_plan(),
        recogniser=recogniser,
        groups=(*groups, *recognised_groups(recogniser)),
        matching=Matching(**matching),
    )


def found(plan: AuditPlan, text: str) -> list[Match]:
    return list(EntityFinder(plan).find(text, (), {}).matches)


def test_a_function_of_ones_own() -> None:
    plan = plan_with(PEOPLE)
    assert plan.recogniser.types == ("PERSON", "GPE")
    assert plan.recogniser.name == "entity_recognisers:people 1"
    assert [(g.name, g.terms) for g in plan.groups] == [("entity/PERSON", ()), ("entity/GPE", ())]
    assert all(g.source == plan.recogniser.source_of_groups for g in plan.groups)
    assert [(m.group, m.entity, m.surface, m.start) for m in found(plan, TEXT)] == [
        ("entity/PERSON", "ann lee", "Ann Lee", 8),
        ("entity/GPE", "iceland", "Iceland", 22),
        ("entity/GPE", "finland", "Finland", 40),
    ]


def test_a_recogniser_that_names_its_entities_itself() -> None:
    with pytest.raises(ConfigurationError, match="say which types"):
        planned_recogniser("entity_recognisers:untyped", None)
    plan = plan_with("entity_recognisers:untyped", ["PERSON"])
    assert [m.entity for m in found(plan, TEXT)] == ["the person"]


def test_ambiguous_terms_count_within_a_recognised_entity() -> None:
    names = EntityGroup(
        name="people/named", terms=("Ann", "Will"), ambiguous={"Ann": "name", "Will": "name"}
    )
    text = "I met Ann Lee. Will we? Ann says no."
    counted = found(plan_with(PEOPLE, [], names, ambiguous="recogniser"), text)
    # the first `Ann` is in `Ann Lee`; `Will` begins a sentence here, which `people` knows not
    assert [(m.surface, m.start) for m in counted] == [("Ann", 6), ("Will", 15), ("Ann", 24)]
    counted = found(plan_with(PEOPLE, [], names, ambiguous="recogniser"), "Ann, will you? Will.")
    assert [m.start for m in counted] == [15]
    matches = Matcher([names], Matching(ambiguous="recogniser")).search("Ann came", [(0, 2)])
    assert (len(matches.kept), len(matches.dropped)) == (0, 1), "only a part of it was recognised"


@pytest.mark.parametrize(
    ("source", "types", "message"),
    [
        ("spacy", None, "write spacy:PACKAGE_OR_FOLDER"),
        ("spacy:", None, "write spacy:PACKAGE_OR_FOLDER"),
        ("os:system", None, "TRANSEXPLAIN_RECOGNISER_MODULES does"),
        ("entity_recognisers:nobody", None, "function 'nobody'"),
        ("entity_recognisers:unmarked", None, "function 'unmarked'"),
        (PEOPLE, ["PERSONS"], "you mean 'PERSON'"),
        ("gliner:nowhere", ["person"], "Nothing is down"),
    ],
)
def test_recognisers_that_are_not_there(source: str, types: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        planned_recogniser(source, types)


@pytest.mark.parametrize("source", ["spacy", "gliner:"])
def test_without_a_folder_none_is_looked_through(source: str, tmp_path, monkeypatch) -> None:
    """The current one may hold a million files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "rglob", lambda *_: pytest.fail("a folder is looked through"))
    with pytest.raises(ConfigurationError, match="write spacy:PACKAGE_OR_FOLDER"):
        planned_recogniser(source, None)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("outside", "answered with what"),
        ("broken", "failed with ValueError"),
    ],
)
def test_functions_that_answer_wrongly(function: str, message: str) -> None:
    with pytest.raises(ItemError, match=message) as caught:
        open_recogniser(f"entity_recognisers:{function}").entities(TEXT)
    assert caught.value.kind == "recogniser-error"


@pytest.mark.parametrize(
    "answer", [(0, 3), (0, 3, ""), (3, 3, "A"), (0, 3, 4), (True, 3, "A"), (0, 3, "A", None)]
)
def test_answers_that_are_no_entities(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = replace(open_recogniser(PEOPLE), find=lambda text: [answer])
    with pytest.raises(ItemError, match="answered with what"):
        opened.entities(TEXT)


def test_texts_are_recognised_together_and_a_bad_one_alone_has_an_error() -> None:
    opened, together = open_recogniser("entity_recognisers:moody"), []

    def find_together(texts: Sequence[str]) -> Iterator[Any]:
        together.append(list(texts))
        return map(opened.find, texts)

    batched = replace(opened, find_together=find_together)
    good = [TEXT, "We met Bob Ray", "nobody"]
    assert batched.entities_of(good) == [opened.entities(text) for text in good]
    assert together == [good]
    found = batched.entities_of([TEXT, "to Poland", "We met Bob Ray"])
    assert [found[0], found[2]] == [opened.entities(TEXT), opened.entities("We met Bob Ray")]
    assert isinstance(found[1], ItemError)
    assert "failed with ValueError" in str(found[1])
    short = replace(opened, find_together=lambda texts: [[]])
    assert short.entities_of(good) == [opened.entities(text) for text in good], "one answer of 3"


def test_entities_that_were_read_together_are_found() -> None:
    plan = plan_with("entity_recognisers:moody")
    finder, texts = EntityFinder(plan), [TEXT, None, "in Poland", TEXT]
    errors = finder.read(texts)
    assert [error is None for error in errors] == [True, True, False, True]
    assert list(finder.find(TEXT, (), {}).matches) == found(plan_with(PEOPLE), TEXT)
    assert finder.find(None, (), {}).matches == ()
    with pytest.raises(ItemError, match="not Poland again"):
        finder.find("in Poland", (), {})
    items = [Item(id=f"i{n}", index=n, content=text or "") for n, text in enumerate(texts)]
    turns = list(finder.in_turn(items))
    assert [isinstance(one, Item) for one in turns] == [True, True, False, True]
    assert (turns[2].item_id, turns[2].index, turns[2].kind) == ("i2", 2, "recogniser-error")


def test_another_version_of_a_function_is_refused() -> None:
    planned = planned_recogniser(PEOPLE, None)
    assert recogniser_of(planned).types == planned.types
    with pytest.raises(ConfigurationError, match="of the plan"):
        recogniser_of(replace(planned, digest="0" * 64))


@needs_spacy
def test_a_saved_spacy_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import spacy

    patterns = [
        {"label": "PERSON", "pattern": "Ann Lee", "id": "Lee, Ann"},
        {"label": "GPE", "pattern": "Iceland"},
    ]
    save_ruler(tmp_path / "ruler", patterns)
    monkeypatch.chdir(tmp_path)
    plan = plan_with("spacy:ruler")
    assert plan.recogniser.source == f"spacy:{tmp_path / 'ruler'}"
    assert absolute_recogniser("spacy:not_a_folder") == "spacy:not_a_folder"
    assert plan.recogniser.name == f"spaCy {spacy.__version__}, en_pipeline 0.0.0"
    assert sorted(plan.recogniser.types) == ["GPE", "PERSON"]
    assert [(m.group, m.entity, m.surface) for m in found(plan, TEXT)] == [
        ("entity/PERSON", "Lee, Ann", "Ann Lee"),
        ("entity/GPE", "iceland", "Iceland"),
    ]
    recogniser, texts = recogniser_of(plan.recogniser), [TEXT, "", "To Iceland"]
    assert recogniser.entities_of(texts) == [recogniser.entities(text) for text in texts]
    save_ruler(tmp_path / "ruler", patterns[:1])
    recogniser_of.cache_clear()
    with pytest.raises(ConfigurationError, match="of the plan"):
        recogniser_of(plan.recogniser)


@needs_spacy
def test_spacy_pipelines_that_cannot_be_used(tmp_path: Path) -> None:
    import spacy

    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match="spaCy pipeline"):
        planned_recogniser(f"spacy:{tmp_path / 'empty'}", None)
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(ConfigurationError, match="finds no entities"):
        planned_recogniser(f"spacy:{tmp_path / 'blank'}", None)
    (tmp_path / "empty" / "config.cfg").write_text("[nlp\n")
    with pytest.raises(ConfigurationError, match="cannot be loaded"):
        planned_recogniser(f"spacy:{tmp_path / 'empty'}", None)
    # an installed package that is no pipeline is not imported
    with pytest.raises(ConfigurationError, match="spaCy pipeline"):
        planned_recogniser("spacy:antigravity", None)
    assert "antigravity" not in sys.modules


def test_spacy_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transexplain.registry.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[ner\]'"):
        planned_recogniser("spacy:en_core_web_sm", None)


class FakeGLiNER:
    """The interface of gliner.GLiNER that its documentation shows."""

    requested: ClassVar[list[tuple[str, dict[str, Any]]]] = []

    @classmethod
    def from_pretrained(cls, path: str, **options: Any) -> "FakeGLiNER":
        cls.requested.append((path, options))
        return cls()

    def predict_entities(self, text: str, labels: list[str]) -> list[dict[str, Any]]:
        start = text.index("Ann Lee")
        return [
            {"start": start, "end": start + 7, "text": "Ann Lee", "label": labels[0], "score": 0.9}
        ]

    def inference(self, texts: list[str], labels: list[str]) -> list[list[dict[str, Any]]]:
        return [self.predict_entities(text, labels) for text in texts]


def gliner_folder(folder: Path) -> Path:
    folder.mkdir()
    (folder / "gliner_config.json").write_text(json.dumps({"encoder_config": {"layers": 1}}))
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_the_interface_of_gliner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, "gliner", SimpleNamespace(GLiNER=FakeGLiNER, __version__="0.0")
    )
    folder = gliner_folder(tmp_path / "small")
    with pytest.raises(ConfigurationError, match="finds what"):
        planned_recogniser(f"gliner:{folder}", None)
    plan = plan_with(f"gliner:{folder}", ["person", "country"])
    assert plan.recogniser.name == "GLiNER 0.0, small"
    assert [(m.group, m.entity) for m in found(plan, TEXT)] == [("entity/person", "ann lee")]
    recogniser = recogniser_of(plan.recogniser)
    assert recogniser.entities_of([TEXT, f"So {TEXT}"]) == [
        [Recognised(8, 15, "person", "ann lee")],
        [Recognised(11, 18, "person", "ann lee")],
    ]
    assert FakeGLiNER.requested[-1] == (str(folder), {"local_files_only": True})


def test_gliner_weights_in_pickles_are_refused(tmp_path: Path) -> None:
    folder = gliner_folder(tmp_path / "small")
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    with pytest.raises(ConfigurationError, match="no pickles"):
        planned_recogniser(f"gliner:{folder}", ["person"])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('{"model_name": "some/encoder"}', "encoder_config, which would"),
        ("[]", "has no encoder_config"),
        ("{", "cannot be read"),
    ],
)
def test_gliner_configurations_that_would_fetch(tmp_path: Path, config: str, message: str) -> None:
    folder = gliner_folder(tmp_path / "small")
    (folder / "gliner_config.json").write_text(config)
    with pytest.raises(ConfigurationError, match=message):
        planned_recogniser(f"gliner:{folder}", ["person"])


def test_gliner_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gliner", None)
    folder = gliner_folder(tmp_path / "small")
    with pytest.raises(ConfigurationError, match="installed"):
        planned_recogniser(f"gliner:{folder}", ["person"])


def test_entities_come_in_order_without_empty_ones() -> None:
    opened = replace(
        open_recogniser(PEOPLE), find=lambda _: [(4, 5, "A"), (0, 3, "B"), (3, 4, "C")]
    )
    assert opened.entities("Ann  Lee") == [Recognised(0, 3, "B", "ann")]
