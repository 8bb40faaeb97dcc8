"""Texts: offsets, words, special tokens, truncation, and every bad item."""

import pickle
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tiny_models import SIZES, bert, byte_level, text_items, wordpiece

from transexplain.errors import ConfigurationError
from transexplain.models.load import wrap
from transexplain.models.loaded_model import Encoded, InputsOfText, LoadedModel
from transexplain.models.text_encoder import tokens_of
from transexplain.types.items import ItemFailure
from transexplain.types.tokens import Token


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return wrap(bert(), modality="text", tokenizer=wordpiece())


def encoded(model: LoadedModel, content: object, **options: object) -> Encoded:
    [one] = model.encode(text_items(content), **options)  # type: ignore[arg-type]
    assert isinstance(one, Encoded), one
    return one


def failed(model: LoadedModel, content: object, **options: object) -> ItemFailure:
    [one] = model.encode(text_items(content), **options)  # type: ignore[arg-type]
    assert isinstance(one, ItemFailure), one
    assert (one.item_id, one.index) == ("i0", 0)
    return one


def tokens(one: Encoded) -> Sequence[Token]:
    assert isinstance(one.features, Sequence)
    assert one.length == len(one.features) == one.inputs["input_ids"].shape[0]
    return one.features


def test_pieces_of_a_word_share_its_index_and_special_tokens_have_none(model: LoadedModel) -> None:
    found = tokens(encoded(model, "A unbelievably  GOOD film"))
    assert [t.text for t in found] == [
        "[CLS]", "A", "un", "believ", "ably", "GOOD", "film", "[SEP]",
    ]  # fmt: skip
    assert [t.word for t in found] == [None, 0, 1, 1, 1, 2, 3, None]
    assert [t.special for t in found] == [True, *[False] * 6, True]
    assert [(t.start, t.end) for t in found[1:-1]] == [
        (0, 1), (2, 4), (4, 10), (10, 14), (16, 20), (21, 25),
    ]  # fmt: skip


def test_offsets_are_characters_of_the_original_text(model: LoadedModel) -> None:
    text = "🎉🎉 ne\u0301e\u0301 góod\u00a0film 👩‍👩‍👧 x"
    for token in tokens(encoded(model, text))[1:-1]:
        assert token.text == text[token.start : token.end]
        assert 0 <= token.start < token.end <= len(text)
    found = {t.text: (t.start, t.end) for t in tokens(encoded(model, text))}
    assert found["góod"] == (text.index("góod"), text.index("góod") + 4)
    assert found["film"] == (text.index("film"), text.index("film") + 4)
    assert found["x"] == (len(text) - 1, len(text))


@pytest.fixture
def roberta() -> LoadedModel:
    config = transformers.RobertaConfig(
        vocab_size=260, max_position_embeddings=34, pad_token_id=1, num_labels=2, **SIZES
    )
    module = transformers.RobertaForSequenceClassification(config)
    return wrap(module, modality="text", tokenizer=byte_level())


def test_byte_level_pieces_of_one_character_cover_that_character(roberta: LoadedModel) -> None:
    found = tokens(encoded(roberta, "ab 🎉 c"))
    party = [t for t in found if t.text == "🎉"]
    assert len(party) == 4
    assert {(t.start, t.end) for t in party} == {(3, 4)}
    words = [t.word for t in found if not t.special]
    assert words[:2] == [0, 0]
    assert words[-1] == 2
    assert set(words) == {0, 1, 2}
    assert all(not t.text.startswith(" ") or t.text == " " for t in found)


def test_position_table_of_roberta_loses_the_rows_up_to_its_padding(roberta: LoadedModel) -> None:
    long = encoded(roberta, "a" * 100)
    assert long.length == 32
    assert long.truncated
    with torch.no_grad():  # one position more would fall off the table
        roberta.module(**{name: row[None] for name, row in long.inputs.items()})


@pytest.mark.parametrize("own", [None, 7, 1000])
def test_limit_is_the_smallest_of_tokenizer_model_and_request(own: int | None) -> None:
    tokenizer = wordpiece(**({} if own is None else {"model_max_length": own}))
    model = wrap(bert(), modality="text", tokenizer=tokenizer)
    assert encoded(model, "x " * 50).length == min(own or 20, 20)
    assert encoded(model, "x " * 50, max_length=5).length == 5
    assert encoded(model, "x x", max_length=5).length == 4


def test_truncated_is_flagged_and_keeps_the_closing_token(model: LoadedModel) -> None:
    cut, whole = encoded(model, "x " * 19), encoded(model, "x " * 18)
    assert (cut.truncated, whole.truncated) == (True, False)
    assert cut.length == whole.length == 20
    assert tokens(cut)[-1].special


def test_long_text_error_names_the_room(model: LoadedModel) -> None:
    reported = failed(model, "x " * 19, long_text="error")
    assert reported.kind == "too-long"
    assert "20 positions" in reported.message
    assert encoded(model, "x " * 18, long_text="error").length == 20


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("", "empty-text"),
        (" \t\n\u00a0", "empty-text"),
        ("\x00\x07", "empty-text"),
        ("bad \ud800 half", "invalid-utf8"),
        (None, "null"),
        (3, "wrong-type"),
        (b"bytes", "wrong-type"),
    ],
)
def test_bad_text_fails_alone(model: LoadedModel, content: object, kind: str) -> None:
    before, bad, after = model.encode(text_items("good", content, "film"))
    assert isinstance(bad, ItemFailure)
    assert (bad.kind, bad.item_id, bad.index) == (kind, "i1", 1)
    assert isinstance(before, Encoded)
    assert isinstance(after, Encoded)
    assert (before.item.id, after.item.id) == ("i0", "i2")


def test_max_length_without_room_is_a_configuration_error(model: LoadedModel) -> None:
    with pytest.raises(ConfigurationError, match="at least 3"):
        model.encode(text_items("good"), max_length=2)


def test_batches_are_padded_on_the_right(model: LoadedModel) -> None:
    rows = [one for one in model.encode(text_items("good", "a nice film")) if type(one) is Encoded]
    batch = model.collate(rows)
    assert batch.lengths.tolist() == [3, 5]
    assert batch.inputs["input_ids"].tolist()[0] == [2, 11, 3, 0, 0]
    assert batch.inputs["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1] * 5]
    assert batch.inputs["token_type_ids"].tolist() == [[0] * 5] * 2
    with pytest.raises(ConfigurationError, match="at least one"):
        model.collate([])


def test_encoded_items_get_their_tokens_from_the_tokenizer(model: LoadedModel) -> None:
    one = encoded(
        model, {"input_ids": [[2, 11, 1, 3, 0]], "attention_mask": torch.tensor([1, 1, 1, 1, 0])}
    )
    assert [t.text for t in tokens(one)] == ["[CLS]", "good", "[UNK]", "[SEP]"]
    assert [t.special for t in tokens(one)] == [True, False, False, True]
    assert {(t.start, t.end, t.word) for t in tokens(one)} == {(0, 0, None)}
    mixed = model.collate([one, encoded(model, "good")])
    assert mixed.inputs["token_type_ids"].tolist() == [[0] * 4] * 2


def test_encoded_items_without_tokenizer_are_numbers() -> None:
    model = wrap(bert(), modality="text")
    one = encoded(model, {"input_ids": torch.tensor([2, 11, 3])})
    assert [t.text for t in tokens(one)] == ["2", "11", "3"]
    assert not any(t.special for t in tokens(one))
    assert failed(model, "good film").kind == "no-tokenizer"


@pytest.mark.parametrize(
    ("content", "kind", "reported"),
    [
        ({}, "bad-input", "input_ids"),
        ({"attention_mask": [1]}, "bad-input", "input_ids"),
        ({"input_ids": [2, 18, 3]}, "bad-input", "18"),
        ({"input_ids": [2, -1, 3]}, "bad-input", "-1"),
        ({"input_ids": [[2, 3], [2, 3]]}, "bad-input", "shape"),
        ({"input_ids": [0.5]}, "bad-input", "integers"),
        ({"input_ids": ["good"]}, "bad-input", "numbers"),
        ({"input_ids": []}, "bad-input", "integers"),
        ({"input_ids": [2, 3], "attention_mask": [1]}, "bad-input", "positions"),
        ({"input_ids": [2, 3], "attention_mask": [0, 1]}, "bad-input", "right"),
        ({"input_ids": [2, 3], "attention_mask": [0, 0]}, "empty-text", "attended"),
        ({"input_ids": [2] * 21}, "too-long", "at most 20"),
        ({"input_ids": [2], "pixels": [1]}, "bad-input", "pixels"),
    ],
)
def test_bad_encoded_items(model: LoadedModel, content: object, kind: str, reported: str) -> None:
    found = failed(model, content)
    assert found.kind == kind
    assert reported in found.message


def one_by_one(text: str, encoding: Any) -> list[Token]:
    """The positions of a text by its tokenizer, one after the other, as `tokens_of` says."""
    found: list[Token] = []
    word, last_word, last_end = -1, None, 0
    columns = (encoding.tokens, encoding.offsets, encoding.special_tokens_mask, encoding.word_ids)
    for piece, (begin, stop), special, named in zip(*columns, strict=True):
        if special:
            found.append(Token(text=piece, start=0, end=0, special=True))
            continue
        cut = text[begin:stop]
        start = stop - len(cut.lstrip()) if cut.strip() else begin
        end = begin + len(cut.rstrip()) if cut.strip() else stop
        apart = any(character.isspace() for character in text[last_end:start])
        word += word < 0 or named != last_word or apart
        last_word, last_end = named, end
        found.append(Token(text=text[start:end] or piece, start=start, end=end, word=word))
    return found


@pytest.mark.parametrize("made", [byte_level, wordpiece])
def test_texts_together_have_the_tokens_of_each(made: Callable[[], Any]) -> None:
    draw = random.Random(0)
    letters = "ab G🎉é\u0301\u00a0\u3000\u2028\n\t.'-\u017f"
    texts = ["", " ", "a", "film  good\u3000", " \u00a0a", "🎉" * 5, "un believably"]
    texts += ["".join(draw.choices(letters, k=draw.randint(1, 40))) for _ in range(300)]
    rows = made()(texts, return_special_tokens_mask=True, padding=False)
    found = tokens_of(texts, rows.encodings)
    for text, encoding, tokens in zip(texts, rows.encodings, found, strict=True):
        assert tokens == one_by_one(text, encoding)
    assert tokens_of([], []) == []


def test_inputs_stay_in_the_arrays_of_the_texts_that_were_encoded_together(
    model: LoadedModel,
) -> None:
    several = [one.inputs for one in model.encode(text_items("a good film", "nice", "a film"))]  # type: ignore[union-attr]
    cut = [one for one in several if isinstance(one, InputsOfText)]
    assert len(cut) == 3
    joined = InputsOfText.joined(cut)
    assert set(joined) == {"input_ids", "token_type_ids", "attention_mask"} == set(cut[0])
    assert np.shares_memory(joined["input_ids"], cut[1].array("input_ids"))
    for some in (cut, cut[::-1], cut[1:], cut[::2], [cut[0], *pickle.loads(pickle.dumps(cut[1:]))]):
        for name, whole in InputsOfText.joined(some).items():
            assert whole.tolist() == torch.cat([one[name] for one in some]).tolist()
    again = pickle.loads(pickle.dumps(cut[1]))
    assert again.array("input_ids").tolist() == cut[1]["input_ids"].tolist()
    assert len(pickle.dumps(cut[1])) < 1000  # of itself alone
    assert "labels" not in again
    with pytest.raises(KeyError):
        again["labels"]
