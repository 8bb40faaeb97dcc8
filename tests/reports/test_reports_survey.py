"""What a walk over a run keeps: a histogram and the best keys."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from report_samples import image_attribution, text_attribution, tokens_of

from transexplain.reports.survey import Sizes
from transexplain.types.words import size_of


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=60), st.floats(0.01, 1.0))
def test_quantiles_are_exact_to_one_percent(values: list[float], share: float) -> None:
    sizes = Sizes()
    for value in values:
        sizes.add(value)
    ranked = sorted(values)
    exact = ranked[max(0, int(np.ceil(share * len(values) - 1e-9)) - 1)]
    found = sizes.quantile(share)
    assert exact <= found * (1 + 1e-9) + 1e-300
    assert found <= exact * 1.0101 or (exact == 0.0 and found <= min(v for v in [*values, 1] if v))


def test_an_empty_histogram_has_the_quantile_0() -> None:
    assert Sizes().quantile(0.9) == 0.0


def test_size_is_the_largest_word_or_patch() -> None:
    text = text_attribution("a b", tokens_of("a b"), [99.0, 1.0, -3.0, 0.0])
    assert size_of(text) == 3.0  # special tokens are no words
    assert size_of(image_attribution([[0.5, -2.0]])) == 2.0
