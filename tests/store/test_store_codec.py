"""Documents are read as they were written."""

import json

import pytest

from transexplain.store.columns import read_json


@pytest.mark.parametrize(
    "value",
    [
        {"a": [2**63, -(2**63) - 1, 3**200, -(3**200), 0]},
        {"\ud800 alone": "\udfff", "é": "\x00"},
        [0.1, -0.0, 5e-324, 1.7976931348623157e308, None, True, "", {}],
    ],
)
def test_documents_are_read_as_json_wrote_them(value: object) -> None:
    document = read_json(json.dumps(value).encode())
    assert json.dumps(document) == json.dumps(value), "the types are the same, too"


@pytest.mark.parametrize("text", [b"", b"{", b"[1,]", b"\xff"])
def test_invalid_json_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        read_json(text)
