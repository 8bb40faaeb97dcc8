"""Long texts by windows: where they are cut, what they are joined to, and what the ledger says."""

import json
import random
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from everyday import only
from explainer_samples import UNAIDED
from store_samples import stored_again
from tiny_audit import make_audit
from tiny_models import bert, text_items, wordpiece

import transexplain as te
from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.errors import ConfigurationError, ItemError
from transexplain.explaining import Request, Stopped, explain_items
from transexplain.explaining.long_texts import window_weights
from transexplain.models.loaded_model import Encoded, LoadedModel, Windows
from transexplain.models.text_length import cut
from transexplain.settings import Settings
from transexplain.store import readers, runs
from transexplain.store.revisions import open_database
from transexplain.types.items import Attribution, ItemFailure
from transexplain.types.scores import MethodSpec
from transexplain.types.targets import ClassNames, parse_target

NAMES = {0: "bad", 1: "so-so", 2: "good"}
#: 24 tokens, of which `unbelievably` has three: [un believ ably] at 2-4 and 14-16
LONG = (
    "a nice unbelievably good film x e film good goods nice a unbelievably a film e x good nice a"
)
SHORT = "a good film"


def tiny(**options: Any) -> LoadedModel:
    tokenizer = options.pop("tokenizer", wordpiece())
    module = bert(id2label=NAMES, initializer_range=0.5, **options).double()
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if name.endswith("bias"):
                weight.copy_(torch.randn(weight.shape, generator=draw, dtype=weight.dtype) / 5)
        # the classes balanced, so that windows disagree
        module.classifier.bias.sub_(torch.tensor([3.61, -0.71, 1.41]))
    return te.wrap(module, tokenizer=tokenizer, modality="text")


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return tiny()


def windowed(model: LoadedModel, items: Any, *args: Any, **options: Any) -> list[Attribution]:
    return te.explain(model, items, *args, **{"long_text": "window", "window": 8, **options})


def encoded(model: LoadedModel, content: Any, **options: Any) -> Encoded:
    stride = options.pop("stride", None)
    [one] = model.encode(
        text_items(content), long_text=Windows(stride=stride), **{"max_length": 8, **options}
    )
    assert isinstance(one, Encoded), one
    return one


def texts_of(one: Encoded) -> list[list[str]]:
    return [[token.text for token in window.encoded.features] for window in one.windows]


# --- where a text is cut


@pytest.mark.parametrize(
    ("words", "capacity", "stride", "spans"),
    [
        ([0, 1, 2, 3, 4], 2, None, [(0, 2), (2, 4), (4, 5)]),
        ([0, 1, 2, 3, 4], 5, None, [(0, 5)]),
        ([0, 1, 1, 2, 2, 3], 2, None, [(0, 1), (1, 3), (3, 5), (5, 6)]),
        ([0, 1, 1, 1, 1, 1, 2], 3, None, [(0, 1), (1, 4), (4, 7)]),  # a word longer than a window
        ([0, 1, 2, 3, 4], 4, 2, [(0, 4), (2, 5)]),
        ([0, 1, 2, 3, 4, 5], 4, 2, [(0, 4), (2, 6)]),
        ([0, 1, 1, 2, 3, 4], 4, 2, [(0, 4), (1, 5), (3, 6)]),  # back to the start of a word
        ([0, 0, 0, 1, 2, 3], 4, 1, [(0, 4), (3, 6)]),  # on, where it is longer than the stride
        ([None] * 5, 3, None, [(0, 3), (3, 5)]),
    ],
)  # fmt: skip
def test_windows_are_cut_between_words(
    words: list[int | None], capacity: int, stride: int | None, spans: list[tuple[int, int]]
) -> None:
    assert cut(words, capacity, stride) == spans


def test_windows_cover_every_text_and_part_only_words_that_fill_one() -> None:
    draw = random.Random(0)
    for _ in range(500):
        words = [n for n in range(12) for _ in range(draw.choice((1, 1, 1, 2, 3, 9)))]
        capacity = draw.randint(1, 9)
        stride = draw.choice((None, draw.randint(1, capacity)))
        spans = cut(words, capacity, stride)
        begins, ends = zip(*spans, strict=True)
        assert (begins[0], ends[-1]) == (0, len(words))
        assert all(0 < end - begin <= capacity for begin, end in spans)
        assert all(one < other for one, other in pairwise(begins))
        assert all(one < other for one, other in pairwise(ends))
        assert all(begin <= end for begin, end in zip(begins[1:], ends, strict=False))
        if stride is None:
            assert begins[1:] == ends[:-1]
        for at in {*begins[1:], *ends[:-1]}:
            assert words[at] != words[at - 1] or words.count(words[at]) > capacity


def test_a_window_is_what_the_tokenizer_itself_would_cut(model: LoadedModel) -> None:
    text = "a film nice good goods x e " * 5
    options = {"truncation": True, "max_length": 8, "stride": 2}
    rows = wordpiece()(text, return_overflowing_tokens=True, **options)
    cuts = [
        one.encoded.inputs["input_ids"].tolist() for one in encoded(model, text, stride=4).windows
    ]
    assert cuts == rows["input_ids"]


def test_the_whole_text_has_every_token_once_with_its_characters(model: LoadedModel) -> None:
    found = encoded(model, LONG, stride=3)
    [plain] = tiny(max_position_embeddings=40).encode(text_items(LONG))
    assert found.features == plain.features
    assert (found.length, found.truncated) == (26, False)
    for window in found.windows:
        assert window.encoded.features == tuple(found.features[p] for p in window.places)
        assert (window.places[0], window.places[-1]) == (0, 25)
        assert window.encoded.length <= 8
    assert texts_of(encoded(model, LONG))[:2] == [
        ["[CLS]", "a", "nice", "un", "believ", "ably", "good", "[SEP]"],
        ["[CLS]", "film", "x", "e", "film", "good", "goods", "[SEP]"],
    ]


def test_windows_are_by_default_as_long_as_texts_are_read() -> None:
    for one, size in ((tiny(), 20), (tiny(tokenizer=wordpiece(model_max_length=9)), 9)):
        windows = encoded(one, "x " * 50, max_length=None).windows
        assert max(window.encoded.length for window in windows) == size
    assert not encoded(tiny(), "x " * 18, max_length=None).windows


# --- what they are joined to


def test_a_text_of_one_window_is_explained_as_ever(model: LoadedModel) -> None:
    [plain] = te.explain(model, SHORT, target="all", max_length=8)[:1]
    one = windowed(model, [LONG, SHORT], target="all")[3]
    assert one.notes == plain.notes == ()
    np.testing.assert_array_equal(one.relevance, plain.relevance)
    assert (one.ledger, one.logit, one.features) == (plain.ledger, plain.logit, plain.features)


@pytest.mark.parametrize("join", ["mean", "sum"])
def test_windows_without_overlap_are_the_explanations_of_their_texts(
    model: LoadedModel, join: str
) -> None:
    parts = ["a nice unbelievably good", "film x e film good goods", "nice a unbelievably a",
             "film e x good nice a"]  # fmt: skip
    assert " ".join(parts) == LONG
    [one] = windowed(model, LONG, target="class:good", long_text_join=join)
    alone = [te.explain(model, part, target="class:good")[0] for part in parts]
    weight = 1 if join == "sum" else 1 / len(parts)
    expected = weight * np.concatenate([part.relevance[1:-1] for part in alone])
    np.testing.assert_allclose(one.relevance[1:-1], expected, rtol=1e-12)
    for place in (0, -1):  # what stands around every window
        assert one.relevance[place] == pytest.approx(
            weight * sum(part.relevance[place] for part in alone)
        )
    assert one.logit == pytest.approx(weight * sum(part.logit for part in alone))
    for entry in ("inputs", "special", "embeddings", "biases", "rules", "total", "magnitude"):
        values = [getattr(part.ledger, entry) for part in alone]
        assert getattr(one.ledger, entry) == pytest.approx(weight * sum(values))
    for kind, value in one.ledger.biases_by_kind.items():
        values = [part.ledger.biases_by_kind[kind] for part in alone]
        assert value == pytest.approx(weight * sum(values))
    assert "4 windows of at most 8 positions" in one.notes[0]
    assert [word.text for word in one.words()] == LONG.split()


def test_a_token_that_two_windows_read_counts_once(model: LoadedModel) -> None:
    text = "a film nice good goods x e a"  # windows of 6 tokens: 0-5 and 2-7, sharing four
    found = encoded(model, text, stride=2)
    np.testing.assert_allclose(window_weights(found, "sum"), [4 / 6, 4 / 6])
    np.testing.assert_allclose(window_weights(found, "mean"), [0.5, 0.5])
    [one] = windowed(model, text, target="class:bad", stride=2)
    first, second = (
        te.explain(model, part, target="class:bad")[0]
        for part in ("a film nice good goods x", "nice good goods x e a")
    )
    assert one.relevance[1] == pytest.approx(first.relevance[1] / 2)
    assert one.relevance[4] == pytest.approx((first.relevance[4] + second.relevance[2]) / 2)
    assert one.relevance[8] == pytest.approx(second.relevance[6] / 2)
    assert one.logit == pytest.approx((first.logit + second.logit) / 2)
    assert "50% of the tokens are in several" in one.notes[0]


@pytest.mark.parametrize("stride", [1, 3, 5, None])
def test_weights_times_sizes_are_the_tokens_of_the_text(
    model: LoadedModel, stride: int | None
) -> None:
    found = encoded(model, LONG * 3, stride=stride)
    sizes = [window.encoded.length - 2 for window in found.windows]
    weights = window_weights(found, "sum")
    means = window_weights(found, "mean")
    assert weights @ sizes == pytest.approx(found.length - 2)
    assert means.sum() == pytest.approx(1)
    assert stride is not None or (set(weights), set(means)) == ({1.0}, {1 / len(sizes)})


def closes(one: Attribution) -> None:
    assert one.relevance.shape == (len(one.features),)
    if one.ledger is not None:
        assert abs(one.ledger.gap) <= 1e-12 * one.ledger.magnitude + 1e-15
        assert one.ledger.inputs + one.ledger.special == pytest.approx(one.relevance.sum())
    if one.ledger is not None and one.unit == "logits":
        assert one.ledger.total == pytest.approx(one.logit, rel=1e-11)


@pytest.mark.parametrize("method", only("lrp", "occlusion", "gae", "lime", of=UNAIDED))
def test_every_method_is_joined_and_batches_change_nothing(model: LoadedModel, method: str) -> None:
    options = {"target": ["top:2", "contrast:good-bad"], "stride": 4}
    items = text_items(SHORT, LONG)
    together = windowed(model, items, method, **options)
    alone = windowed(model, items[1], method, **options, batch_tokens=1)
    for one, other in zip(together[3:], alone, strict=True):
        closes(one)
        np.testing.assert_allclose(one.relevance, other.relevance, rtol=1e-9, atol=1e-12)
        assert one.logit == pytest.approx(other.logit, rel=1e-9)
        assert (one.class_name, one.text) == (other.class_name, LONG)


@pytest.mark.parametrize("stride", [None, 3])
@pytest.mark.parametrize("join", ["mean", "sum"])
def test_the_ledger_closes_for_every_target_and_item(
    model: LoadedModel, join: str, stride: int | None
) -> None:
    texts = [LONG, SHORT, f"{LONG} x"]
    options = {"stride": stride, "long_text_join": join, "target": ["all", "contrast:good-bad"]}
    found = windowed(model, texts, **options)
    targets = [*(("all", rank) for rank in range(3)), ("contrast:good-bad", 0)]
    order = [(str(item), *target) for item in range(3) for target in targets]
    assert [(one.item_id, one.target, one.rank) for one in found] == order
    for one in found:
        closes(one)
        assert one.text == texts[int(one.item_id)]
    bad, _, good, contrast = found[:4]
    np.testing.assert_allclose(contrast.relevance, good.relevance - bad.relevance, atol=1e-12)


def request_of(model: LoadedModel, *targets: str, **options: Any) -> Request:
    names = ClassNames(model.classes, ())
    return Request(
        method=options.pop("method", MethodSpec()),
        targets=tuple(parse_target(target, names) for target in targets),
        names=names,
        **{"long_text": "window", "window": 8, **options},
    )


def logits_of(model: LoadedModel, text: str) -> list[float]:
    return [one.logit for one in te.explain(model, text, target="all")]


@pytest.mark.parametrize("method", ["lrp", "random"])
@pytest.mark.parametrize("budget", [8, 40, 10_000])
def test_all_windows_explain_the_class_of_the_joined_logits(
    model: LoadedModel, budget: int, method: str
) -> None:
    parts = ["film goods e e e a", "nice a good e good good", "goods x e x x nice"]
    own = {te.explain(model, part)[0].class_name for part in parts}
    assert len(own) > 1, "the windows agree: this test says nothing"
    logits = np.mean([logits_of(model, part) for part in parts], axis=0)
    spec = MethodSpec(name=method)
    request = request_of(model, "predicted", "top:2", batch_tokens=budget, method=spec)
    [found] = explain_items(model, text_items(" ".join(parts)), request)
    np.testing.assert_allclose(found.outcome.logits, logits)
    best, next_best = np.argsort(-logits)[:2]
    assert found.outcome.predicted == NAMES[int(best)]
    assert [one.class_index for one in found.attributions] == [best, best, next_best]
    expected = logits[[best, best, next_best]]
    assert [one.logit for one in found.attributions] == pytest.approx(expected)
    assert (found.outcome.positions, found.outcome.truncated) == (20, False)


def test_a_model_that_ends_in_a_softmax_is_joined_below_it() -> None:
    class Ending(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = tiny().module

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.inner(input_ids, attention_mask).logits.softmax(-1)

    model = te.wrap(Ending(), tokenizer=wordpiece(), modality="text", classes=list(NAMES.values()))
    # the mean of the probabilities has another largest class than the mean of the logits
    parts = [
        f"good {rest}"
        for rest in ("nice nice goods good nice", "a good e nice film", "a good e nice goods")
    ]
    shares = np.mean([torch.tensor(logits_of(tiny(), part)).softmax(0) for part in parts], axis=0)
    joined = np.mean([logits_of(tiny(), part) for part in parts], axis=0)
    assert shares.argmax() != joined.argmax()
    for budget in (8, 10_000):
        [one] = windowed(model, " ".join(parts), batch_tokens=budget)
        assert (one.class_index, one.logit) == (joined.argmax(), pytest.approx(joined.max()))
        assert len(one.notes) == 2


def test_numbers_in_notes_are_given_as_their_range_over_the_windows(model: LoadedModel) -> None:
    params = {"gamma": 0.25, "gamma_form": "transexplain", "epsilon": 0.01, "target": "class:bad"}
    [one] = windowed(model, LONG, "lrp", **params)
    [alone] = te.explain(model, "a nice unbelievably good", "lrp", **params)
    low, high = map(float, re.findall(r"\d+\.?\d*", one.notes[1]))
    [single] = map(float, re.findall(r"\d+\.?\d*", alone.notes[0]))
    assert low <= single <= high and low < high


def test_every_window_has_random_numbers_of_its_own(model: LoadedModel) -> None:
    [one] = windowed(model, "x " * 12, "random")
    assert len(set(one.relevance[1:-1].tolist())) == 12


# --- what goes wrong


class Watch:
    """Notes the batches; asks to stop before the one with number `last`."""

    def __init__(self, last: int = 10**9) -> None:
        self.last = last
        self.batches: list[list[str]] = []
        self.done: list[str] = []

    def batch_started(self, item_ids: Sequence[str]) -> None:
        self.batches.append(list(item_ids))

    def check_started(self, item_ids: Sequence[str]) -> None:
        raise AssertionError("to explain is no check")

    def item_done(self, *item_ids: str) -> None:
        self.done.extend(item_ids)

    def should_stop(self) -> bool:
        return len(self.batches) >= self.last


def test_the_observer_receives_items_and_not_windows(model: LoadedModel) -> None:
    watch = Watch()
    request = request_of(model, "class:bad", batch_tokens=16)
    list(explain_items(model, text_items(LONG, SHORT, LONG), request, observer=watch))
    assert {item for batch in watch.batches for item in batch} == {"i0", "i1", "i2"}
    assert sorted(watch.done) == ["i0", "i1", "i2"]
    assert len(watch.batches) == 1 + 2 * 2  # one for the short text, two for each long one
    watch = Watch(last=1)  # a long item stops between two batches of its windows
    request = request_of(model, "class:bad", batch_tokens=8)
    with pytest.raises(Stopped):
        list(explain_items(model, text_items(LONG), request, observer=watch))
    assert (watch.batches, watch.done) == ([["i0"]], [])


@pytest.mark.parametrize("budget", [8, 10_000])
def test_a_window_that_fails_costs_its_item_only(budget: int) -> None:
    model = tiny()
    bad = wordpiece().convert_tokens_to_ids("[")

    def fail(_module: Any, _args: Any, kwargs: dict[str, Any]) -> None:
        if bool((kwargs["input_ids"] == bad).any()):
            raise RuntimeError("no brackets")

    model.module.register_forward_pre_hook(fail, with_kwargs=True)
    texts = [LONG, f"{LONG} [ {LONG}", SHORT, LONG + " x"]
    found = windowed(model, texts, on_error="record", batch_tokens=budget)
    assert [isinstance(one, ItemFailure) for one in found] == [False, True, False, False]
    assert found[1].kind == "model-error" and "no brackets" in found[1].message
    good = windowed(tiny(), [LONG, SHORT, LONG + " x"])
    for one, other in zip([found[0], *found[2:]], good, strict=True):
        np.testing.assert_allclose(one.relevance, other.relevance, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"long_text": "windows"}, "truncate, window, error"),
        ({"long_text": "truncate", "window": 8}, "window=8"),
        ({"long_text": "error", "stride": 8}, "stride=8"),
        ({"long_text": "truncate", "long_text_join": "sum"}, "long_text_join=sum"),
        ({"long_text_join": "max"}, "mean, sum"),
        ({"window": 8, "max_length": 8}, "window=8.*max_length=8"),
        ({"window": 0}, "window"),
        ({"window": 8, "stride": 0}, "stride"),
        ({"window": 8, "stride": 7}, "at most 6"),
        ({"window": 2}, "word"),
        ({"window": 21}, "20"),
    ],
)
def test_contradicting_parameters_are_reported_before_anything_is_computed(
    model: LoadedModel, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        te.explain(model, SHORT, **{"long_text": "window", **options})


def test_encoded_items_have_windows_where_a_tokenizer_says_what_frames_them(
    model: LoadedModel,
) -> None:
    ids = wordpiece()(LONG)["input_ids"]
    # words are unknown here, so that the cuts differ from those of the text
    [one] = windowed(model, {"input_ids": ids}, window=8, target="class:bad")
    closes(one)
    assert one.relevance.shape == (26,) and "4 windows" in one.notes[0]
    positions = list(range(len(ids)))  # these count from the beginning of each window
    [same] = windowed(model, {"input_ids": ids, "position_ids": positions}, target="class:bad")
    np.testing.assert_array_equal(same.relevance, one.relevance)
    bare = te.wrap(tiny().module, modality="text")
    with pytest.raises(ItemError, match=r"26 encoded positions.*tokenizer"):
        windowed(bare, {"input_ids": ids})


def test_a_methods_own_window_is_meant_unless_texts_have_windows(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transexplain.api.parameters_of", lambda _: ("window", "at"))
    with pytest.raises(ConfigurationError, match="method 'lrp' has no parameter 'window'"):
        te.explain(model, SHORT, window=3)
    assert windowed(model, LONG)[0].notes


# --- audits and the command line


def test_windows_are_part_of_a_plan_and_wrong_ones_are_reported_by_name(tmp_path: Path) -> None:
    path, settings = make_audit(tmp_path, items=1), Settings(snapshot_dir=tmp_path / "s")
    for words, named in (
        (["window=8"], "window=8"),
        (["long_text=window", "window=8", "max_length=8"], "window=8.*max_length=8"),
        (["long_text=window", "stride=0"], "stride"),
        (["long_text=window", "long_text_join=max"], "long_text_join"),
        (["long_text=window", "window=8", "stride=7"], "at most 6"),  # before the run
    ):
        with pytest.raises(ConfigurationError, match=named):
            prepare_audit(load_spec(path, settings=words), settings)
    words = ["long_text=window", "window=8", "stride=3", "long_text_join=sum"]
    plan = prepare_audit(load_spec(path, settings=words), settings).plan
    assert stored_again(plan) == plan
    request = Request.from_plan(plan)
    assert (request.window, request.stride, request.long_text_join) == (8, 3, "sum")


@pytest.mark.exhaustive
def test_an_audit_reads_a_text_of_three_thousand_words_to_its_end(call, tmp_path: Path) -> None:
    spec = make_audit(tmp_path, items=6)
    long = " ".join(["a good film", *["nice e"] * 1498, "goods"])
    with (tmp_path / "texts.jsonl").open("a") as lines:
        lines.write(json.dumps({"text": long, "label": "good"}) + "\n")
    code, printed = call("run", str(spec), "--long-text", "window", "--window", "18")
    assert code == 0, printed
    with open_database(f"sqlite:///{tmp_path}/transexplain.db") as db:
        run = runs.get(db, "latest")
        *_, outcome = readers.iter_items(db, run.id)
        explained = [a for a in readers.iter_attributions(db, run.id) if a.item_id == "6"]
        mentions = [m for m in readers.iter_mentions(db, run.id) if m.item_id == "6"]
    assert (outcome.positions, outcome.truncated) == (3002, False)
    assert [a.target for a in explained] == ["predicted", "contrast:good-bad"]
    for one in explained:
        assert one.relevance.shape == (3002,)
        assert one.ledger is not None and one.ledger.relative_gap < 5e-6
        assert "188 windows" in one.notes[0]
        last = max((m for m in mentions if m.target == one.target), key=lambda m: m.start)
        assert (last.surface, last.end) == ("goods", len(long))
        assert last.relevance == pytest.approx(float(one.relevance[-2]))
    [html] = (tmp_path / "audits").glob("tiny-*.html")
    assert html.stat().st_size < 2_000_000


def test_the_command_line_explains_a_long_text_whole(call, bert_dir: Path) -> None:
    words = ("explain", "film " * 40, "--model", str(bert_dir), "--json")
    code, printed = call(*words, "--long-text", "window", "--window", "10", "--stride", "4",
                      "--join", "sum")  # fmt: skip
    assert code == 0, printed
    [one], _ = json.JSONDecoder().raw_decode(printed)  # behind it, what fixtures said
    assert len(one["relevance"]) == 42 and "at most 10 positions, sum" in one["notes"][0]
    code, printed = call(*words, "--window", "10")
    assert code == 2 and "window=10" in printed


# --- real reviews


@pytest.mark.shared
@pytest.mark.parametrize("stride", only(None, of=[None, 23]))
def test_reviews_are_explained_whole(shared_dir: Path, stride: int | None) -> None:
    import gzip

    model = te.load_model(str(shared_dir / "real/models/minilm-sst2"))
    with gzip.open(shared_dir / "real/text/eraser_movies/docs.jsonl.gz", "rt") as lines:
        reviews = [json.loads(line)["text"] for line, _ in zip(lines, range(2), strict=False)]
    for one in te.explain(model, reviews, long_text="window", stride=stride):
        assert one.ledger.relative_gap < 5e-6
        assert one.text[one.features[-2].start : one.features[-2].end] == one.text.split()[-1]
        assert " of at most 48 positions, mean of their logits" in one.notes[0]
        assert one.ledger.inputs + one.ledger.special == pytest.approx(
            one.relevance.sum(), abs=5e-6 * one.ledger.magnitude
        )
