"""The public interface, as a user calls it."""

import pickle
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas
import pytest
import torch
from explainer_samples import UNAIDED
from matplotlib import pyplot
from PIL import Image
from tiny_language import byte_pairs, causal
from tiny_models import bert, vit, wordpiece
from tiny_towers import processor, tokenizer
from tiny_towers import towers as two_towers

import transexplain as te
from transexplain.errors import ConfigurationError, ItemError
from transexplain.types.items import Attribution

mpl.use("agg")

TEXTS = ["a good film", "nice", "unbelievably good goods [x] a film", "film film"]


@pytest.fixture(scope="module")
def text_model():
    return te.wrap(
        bert(id2label={0: "bad", 1: "so-so", 2: "good"}).double(),
        tokenizer=wordpiece(),
        modality="text",
    )


def transform(image: Image.Image) -> torch.Tensor:
    pixels = np.asarray(image.resize((24, 24)), dtype=np.float32)
    return torch.from_numpy(pixels.transpose(2, 0, 1) / 255.0)


@pytest.fixture(scope="module")
def image_model():
    return te.wrap(vit(), modality="image", transform=transform)


def picture(seed: int = 0) -> Image.Image:
    noise = np.random.default_rng(seed).integers(0, 255, (24, 24, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def test_one_attribution_per_item_and_target_in_input_order(text_model) -> None:
    found = te.explain(text_model, TEXTS, target=["top:2", "contrast:good-so-so"], batch_tokens=16)
    targets = (("top:2", 0), ("top:2", 1), ("contrast:good-so-so", 0))
    order = [(str(i), *target) for i in range(4) for target in targets]
    assert [(one.item_id, one.target, one.rank) for one in found] == order
    for one in found:
        assert isinstance(one, Attribution)
        assert (one.method, one.unit, one.at) == ("lrp", "logits", "encoder")
        assert one.relevance.dtype == np.float64
        assert one.relevance.shape == (len(one.features),)
        assert one.text == TEXTS[int(one.item_id)]
        assert one.ledger.relative_gap < 1e-12
        assert one.ledger.inputs + one.ledger.special == pytest.approx(one.relevance.sum())


@pytest.mark.parametrize("method", UNAIDED)
def test_batches_change_nothing(text_model, method: str) -> None:
    together = te.explain(text_model, TEXTS, method, batch_tokens=10_000)
    alone = te.explain(text_model, TEXTS, method, batch_tokens=1)
    for left, right in zip(together, alone, strict=True):
        np.testing.assert_allclose(left.relevance, right.relevance, rtol=1e-10, atol=1e-12)


def test_words_are_sums_of_their_pieces(text_model) -> None:
    (one,) = te.explain(text_model, "a unbelievably good film")
    words = one.words()
    assert [word.text for word in words] == ["a", "unbelievably", "good", "film"]
    pieces = [r for t, r in zip(one.features, one.relevance, strict=True) if t.word == 1]
    assert len(pieces) == 3
    assert words[1].relevance == pytest.approx(sum(pieces))
    assert sum(w.relevance for w in words) == pytest.approx(one.ledger.inputs)
    of_tokens = [(word.text, word.relevance) for word in replace(one, text=None).words()]
    assert of_tokens == [(word.text, word.relevance) for word in words]


def test_images(image_model, tmp_path: Path) -> None:
    found = te.explain(image_model, [picture(0), np.asarray(picture(1))], target="all")
    assert len(found) == 8
    for one in found:
        assert (one.relevance.shape, one.features.prefix) == ((3, 3), 1)
        assert one.ledger.relative_gap < 5e-6
        assert one.ledger.special == pytest.approx(sum(one.prefix_relevance), abs=1e-6)
    with pytest.raises(TypeError, match="texts"):
        found[0].words()
    (one,) = te.explain(image_model, picture(), at="pixels")
    assert one.relevance.shape == (24, 24)
    with pytest.raises(te.TransExplainError, match="words"):
        te.explain(image_model, picture(), at="words")
    picture(3).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_text("not a picture")
    files = [tmp_path / "good.png", str(tmp_path / "bad.png")]
    good, bad = te.explain(image_model, files, on_error="record")
    assert isinstance(good, Attribution) and bad.kind == "bad-image"


def test_errors_are_raised_or_recorded(text_model) -> None:
    items = ["good", "", "film"]
    with pytest.raises(ItemError) as caught:
        te.explain(text_model, items)
    first, failure, last = te.explain(text_model, items, on_error="record")
    assert isinstance(first, Attribution) and isinstance(last, Attribution)
    assert caught.value.kind == failure.kind == "empty-text" and failure.item_id == "1"


def test_one_bad_item_never_costs_the_others(text_model, monkeypatch) -> None:
    """A batch that fails is halved until the item at fault is alone."""
    collate = type(text_model).collate

    def fail(self, encoded):
        if any("goods" in one.item.content for one in encoded):
            raise RuntimeError("no such kernel")
        return collate(self, encoded)

    monkeypatch.setattr(type(text_model), "collate", fail)
    found = te.explain(text_model, TEXTS, on_error="record")
    assert [isinstance(one, Attribution) for one in found] == [True, True, False, True]
    assert found[2].kind == "model-error" and "no such kernel" in found[2].message
    assert found[2].traceback.endswith("\nRuntimeError")


def test_streams_are_never_collected(text_model) -> None:
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield "good film"

    stream = te.explain_iter(text_model, endless())
    assert [next(stream).item_id for _ in range(3)] == ["0", "1", "2"]
    assert taken < 1000


def test_own_classes(text_model) -> None:
    own = [{"name": "not-good", "classes": ["bad", "so-so"]}]
    (sum_,) = te.explain(text_model, "film", target="not-good", classifications=own)
    parts = te.explain(text_model, "film", target=["class:bad", "class:so-so"])
    np.testing.assert_allclose(sum_.relevance, sum(p.relevance for p in parts))
    assert sum_.class_index is None
    assert sum_.logit == pytest.approx(sum(p.logit for p in parts))


def test_a_class_by_name_or_number(text_model) -> None:
    expected = te.explain(text_model, "film", target="class:good")[0]
    for target in ("good", 2, "2", {"class": "good"}):
        (found,) = te.explain(text_model, "film", target=target)
        assert (found.class_name, found.class_index) == ("good", 2)
        np.testing.assert_array_equal(found.relevance, expected.relevance)
    both = te.explain(text_model, "film", target=("good", 0))
    assert [one.target for one in both] == ["class:good", "class:bad"]
    item = te.Item(id="0", index=0, content="film", label="2")
    (one,) = te.explain(text_model, item, target="label", labels="by-index")
    assert one.class_name == "good"


def test_records_show_themselves_in_a_line(text_model, image_model) -> None:
    (one,) = te.explain(text_model, "a good film " * 3, target="good")
    assert repr(one).startswith("<Attribution item='0' method=lrp class='good' logit=")
    assert re.fullmatch(r"<Ledger inputs=\S+ special=.* total=\S+ gap=\S+>", repr(one.ledger))
    (drawn,) = te.explain(image_model, picture(), target=0)
    assert repr(drawn).endswith("picture, 3 x 3 patches>")
    assert "3 classes (bad, so-so, good), float64 on cpu" in repr(text_model)
    for content, shown in (
        ("x" * 50, f"'{'x' * 39}…'"),
        (picture(), "Image 24 x 24"),
        (np.zeros((2, 3, 3)), "ndarray 2 x 3 x 3"),
        ({"input_ids": [1]}, "inputs input_ids"),
        (None, "NoneType"),
    ):
        item = te.Item(id="7", index=7, content=content, label="l")
        assert repr(item) == f"<Item '7' label='l': {shown}>"


#: argument -> wrong values and what the message names
WRONG: dict[str, list[tuple[Any, str]]] = {
    "model": [
        *(("models/sst2", "'models/sst2'"), (Path("m"), r"load_model\('m'\)")),
        *((None, "NoneType"), (torch.nn.Linear(2, 2), "Linear")),
    ],
    "items": [
        *((5, r"5 \(int\)"), (None, r"None \(NoneType\)"), (np.array(5), r"array\(5\)")),
        *((pandas.DataFrame({"text": ["a"]}), "DataFrame"), (picture(), "Image")),
        *(([5], "strings or encoded"), ([("a", 1)], "strings or encoded")),
    ],
    "method": [(5, "method 5"), (None, "method None"), ("lpr", "'lrp'")],
    "target": [(1.5, r"1.5 \(float\)"), ("label", "item '0'"), ("class:great", "bad, so-so, good")],
    "classifications": [(["x"], "'x'.*{'name'"), ([{"name": "x"}], "{'name': 'x'}")],
    **{"on_error": [("ignore", "on_error")], "labels": [("good", "'good'")]},
    **{"max_length": [("x", "max_length")], "batch_tokens": [(0, "batch_tokens")]},
    **{"batch_size": [(3, "'batch_tokens'")], "at": [("pixels", "pixels")]},
    **{name: [(3, f"'{name}'")] for name in ("colour", "max_lenght", "gama")},
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_objects_are_named_with_the_remedy(text_model, name: str) -> None:
    for value, named in WRONG[name]:
        with pytest.raises(te.TransExplainError, match=named):
            te.explain(**{"model": text_model, "items": "film", name: value})


def test_items_in_columns_and_arrays(text_model, image_model) -> None:
    column = pandas.Series(["a film", "good"], index=[7, 9])
    found = te.explain(text_model, column)
    assert [(one.item_id, one.text) for one in found] == [("0", "a film"), ("1", "good")]
    assert len(te.explain(text_model, np.array(["a", "film"], dtype=object))) == 2
    pictures = np.stack([np.asarray(picture(seed)) for seed in range(2)])
    together, alone = te.explain(image_model, pictures), te.explain(image_model, pictures[0])
    assert (len(together), len(alone)) == (2, 1)
    np.testing.assert_allclose(together[0].relevance, alone[0].relevance, atol=1e-6)


def test_one_method_or_metric_needs_no_list(text_model) -> None:
    (table,) = te.evaluate(text_model, TEXTS, "lrp", "pruning")
    assert {row.method for row in table.rows} == {"lrp", "random"}
    (one,) = te.explain_by_methods(text_model, TEXTS[0], methods="saliency")
    assert one.method == "saliency"
    with pytest.raises(ConfigurationError, match="'baseline'"):
        te.evaluate(text_model, TEXTS, "lrp", "pruning", baseline="unk")


def test_probabilities_are_those_of_the_model(text_model) -> None:
    first, second = te.explain(text_model, TEXTS[0], target="top:2")
    classes = te.explain(text_model, TEXTS[0], target="all")
    logits = torch.tensor([one.logit for one in classes])
    expected = dict(zip(text_model.classes, logits.softmax(0).tolist(), strict=True))
    assert first.probabilities == pytest.approx(expected)
    assert list(first.probabilities)[:2] == [first.class_name, second.class_name]
    several = bert(id2label={0: "bad", 1: "so-so", 2: "good"}).double()
    several.config.problem_type = "multi_label_classification"
    (one,) = te.explain(te.wrap(several, tokenizer=wordpiece()), TEXTS[0], target="top:1")
    sigmoids = dict(zip(text_model.classes, logits.sigmoid().tolist(), strict=True))
    assert one.probabilities == pytest.approx(sigmoids)


def test_probabilities_of_many_classes_are_the_largest_and_the_explained_one() -> None:
    module = vit(num_labels=50)
    with torch.no_grad():
        module.classifier.bias[:] = torch.arange(50.0)
    model = te.wrap(module, transform=transform)
    (one,) = te.explain(model, picture(), target="LABEL_3")
    largest = [f"LABEL_{place}" for place in range(49, 29, -1)]
    assert list(one.probabilities) == [*largest, "LABEL_3"]


def test_outputs_that_are_no_logits_give_no_false_probabilities() -> None:
    number = te.wrap(vit(num_labels=1), transform=transform)
    assert te.explain(number, picture())[0].probabilities == {}

    class Ended(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = vit()

        def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
            return self.inner(pixel_values).logits.softmax(-1)

    ended = te.wrap(Ended(), modality="image", transform=transform)
    lrp, saliency = (te.explain(ended, picture(), name, target=0) for name in ("lrp", "saliency"))
    assert lrp[0].probabilities == pytest.approx(saliency[0].probabilities, abs=1e-5)


def test_import_is_light() -> None:
    code = "import sys; from transexplain import Attribution; sys.exit('torch' in sys.modules)"
    root = Path(__file__).resolve().parents[1]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


def test_public_names_exist_and_no_module_hides_a_function() -> None:
    """An import of a module `transexplain.explain` would put it in the place of the function."""
    assert all(getattr(te, name) is not None for name in te.__all__)
    assert dir(te) == sorted(te.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        te.nothing  # noqa: B018
    modules = {module.name for module in pkgutil.iter_modules(te.__path__)}
    assert modules & set(te.__all__) == {"render"}  # itself public


def test_render(text_model, image_model) -> None:
    found = te.explain(text_model, TEXTS[:2])
    assert "good" in te.render.html(found)
    (one,) = te.explain(image_model, picture())
    assert te.render.overlay(one, picture()).size == (384, 384)
    assert te.render.overlay(one, np.asarray(picture()), size=None).size == (24, 24)
    assert te.render.overlay(one, picture().resize((600, 500))).size == (600, 500)
    with pytest.raises(TypeError, match="pictures"):
        te.render.overlay(found[0], picture())


def test_attributions_know_the_pictures_that_they_explain(image_model, text_model, tmp_path):
    given, path = picture(), tmp_path / "a.png"
    picture(1).save(path)
    array = np.asarray(picture(2))
    first, second, third = te.explain(image_model, [given, path, array])
    assert first.picture is given and third.picture is array
    assert second.picture == str(path), "a file that was opened here is not kept in memory"
    for one, over in ((first, given), (second, picture(1)), (third, array)):
        np.testing.assert_array_equal(te.render.overlay(one), te.render.overlay(one, over))
        drawn, known = one.plot(), te.plot(one, over)
        np.testing.assert_array_equal(
            *(axes.get_images()[0].get_array() for axes in (drawn, known))
        )
    pyplot.close("all")
    alone, streamed = replace(first), next(te.explain_iter(image_model, [given]))
    assert alone.picture is None and streamed.picture is None
    assert first._repr_html_().count("data:image/jpeg") == 1
    assert alone._repr_html_().count("data:image/png") == 1
    with pytest.raises(ConfigurationError, match=r"overlay\(attribution"):
        te.render.overlay(streamed)
    path.unlink()
    assert second._repr_html_() == replace(second)._repr_html_(), "the file is gone: heatmap alone"
    with pytest.raises(ItemError, match=r"cannot read a\.png"):
        te.plot(second, path)
    assert te.explain(text_model, "film")[0].picture is None
    encoded = {"pixel_values": transform(given)}
    assert te.explain(image_model, encoded)[0].picture is None
    (compared,) = te.explain_by_methods(image_model, given, methods="saliency", target=0)
    assert compared.attributions[0].picture is given and compared.attributions[0].probabilities
    assert pickle.loads(pickle.dumps(first)).picture is None
    assert not {"picture", "_picture"} & asdict(first).keys(), "in no export"


def test_a_cut_text_is_warned_of_once_and_says_so(text_model) -> None:
    long = "good " * 400
    with pytest.warns(UserWarning, match="'1' is longer") as warned:
        found = te.explain(text_model, ["a film", long, long])
    assert len(warned) == 1
    assert [one.truncated for one in found] == [False, True, True]
    read = len("good " * (len(found[1].features) - 2)) - 1
    assert f"(truncated: {read} of 2,000 characters read)" in repr(found[1])
    assert "truncated" not in repr(found[0])
    for options in ({"long_text": "truncate"}, {"long_text": "window"}, {"max_length": 8}):
        te.explain(text_model, long, **options)  # a warning would be an error here


def test_other_loaded_models_name_the_function_that_fits(text_model) -> None:
    language = te.load_language_model(causal(), byte_pairs())
    towers = te.load_two_towers(two_towers(), tokenizer(), processor())
    for function in (te.explain, te.evaluate, te.explain_by_methods):
        with pytest.raises(ConfigurationError, match=r"te.explain_answers\(model, prompt\)"):
            function(language, "a film")
        with pytest.raises(ConfigurationError, match=r"te.explain_similarity\("):
            function(towers, "a film")
    with pytest.raises(ConfigurationError, match=r"te.explain_answers\("):
        te.load_model(language)
    with pytest.raises(ConfigurationError, match=r"te.explain\("):
        te.explain_answers(text_model, "a film")
    with pytest.raises(ConfigurationError, match=r"te.explain\("):
        te.explain_similarity(text_model, (picture(), "a film"))


def _every_call(folder: Path) -> dict[str, Callable[[], Any]]:
    """Each public function that runs a model, which it loads."""
    words, both, pair = causal(), two_towers(), (picture(), "a film")
    parts = {"first": "a", "last": "b"}

    def model() -> Any:
        return te.load_model(folder)

    def language() -> Any:
        return te.load_language_model(words, byte_pairs())

    return {
        "explain": lambda: te.explain(model(), "a film", "integrated-gradients"),
        "explain_iter": lambda: te.explain_iter(model(), ["a film", "nice"]),
        "encoded": lambda: te.explain(model(), {"input_ids": torch.tensor([2, 5, 3])}),
        "wrap": lambda: te.explain(te.wrap(model().module, tokenizer=wordpiece()), "a film", "gae"),
        "evaluate": lambda: te.evaluate(model(), ["a good film"], metrics="activation"),
        "explain_by_methods": lambda: te.explain_by_methods(model(), "nice", methods="smoothgrad"),
        "audit": lambda: (
            te.audit(
                model(), ["a film", "nice"], database=folder / "runs.db", progress=False
            ).groups.columns
        ),
        "explain_answers": lambda: te.explain_answers(language(), "a film"),
        "attribute_context": lambda: te.attribute_context(language(), parts, target="generate:2"),
        "explain_similarity": lambda: te.explain_similarity(
            te.load_two_towers(both, tokenizer(), processor()), pair
        ),
    }


@pytest.mark.parametrize("name", _every_call(Path()))
def test_inference_mode_of_the_caller_changes_nothing(name: str, bert_dir: Path) -> None:
    call = _every_call(bert_dir)[name]
    expected = list(call())
    with torch.inference_mode():
        found = list(call())
        assert torch.is_inference_mode_enabled()
    for one, other in zip(found, expected, strict=True):
        assert repr(getattr(one, "attributions", one)) == repr(
            getattr(other, "attributions", other)
        )


@pytest.mark.parametrize("path", ["~nobody-here/m", "a" * 5_000, "a\0b", "\ud800", "", "m.csv/"])
def test_paths_that_lead_nowhere_are_refused_by_every_function(
    path: str, text_model, image_model, tmp_path: Path
) -> None:
    here: dict[str, Any] = {"database": tmp_path / "runs.db", "progress": False}
    calls: tuple[Callable[[], Any], ...] = (
        lambda: te.load_model(path),
        lambda: te.load_language_model(path),
        lambda: te.load_two_towers(path),
        lambda: te.explain(image_model, Path(path)),
        lambda: te.audit(text_model, path, **here),
        lambda: te.audit(path, ["a film"], **here),
        lambda: te.audit(text_model, ["a film"], groups=path, **here),
    )
    for call in calls:
        with pytest.raises(te.TransExplainError):
            call()


@pytest.mark.parametrize(
    "value", [None, 5, "a film", b"a film", [5], np.zeros(3), np.array(5), {"a": 1}, str]
)
def test_drawing_refuses_what_is_no_attribution(value: Any) -> None:
    drawing = (te.render.html, te.render.ansi, te.render.overlay, te.render.graph)
    for function in (*drawing, te.render.pair, te.render.comparison, te.plot, te.to_frame):
        with pytest.raises(te.TransExplainError) as refusal:
            function(value)
        assert isinstance(refusal.value, TypeError)


def test_one_item_is_no_stream_of_its_letters_or_columns(text_model, tmp_path: Path) -> None:
    (one,) = te.explain_iter(text_model, "a film")
    assert one.text == "a film"
    (same,) = te.explain_iter(text_model, te.Item(id="0", index=0, content="a film"))
    assert np.array_equal(one.relevance, same.relevance)
    for value in (None, 5, np.array(5), pandas.DataFrame({"text": ["a"]})):
        with pytest.raises(ConfigurationError):
            list(te.explain_iter(text_model, value))
    with pytest.raises(ItemError):
        te.evaluate(text_model, [5, 6], metrics="activation")
    assert te.evaluate(text_model, [5, "a good film"], metrics="activation")
    frame = pandas.DataFrame([["a", "b"]], columns=["text", "text"])
    with pytest.raises(te.TransExplainError, match="'text'"):
        te.audit(text_model, frame, database=tmp_path / "runs.db", progress=False)
