"""What the benchmarks of language models and of pairs are made from, without a model."""

from collections import Counter

import numpy as np

from benchmarks.entailment_pairs import CLASSES, NAMES, pairs
from benchmarks.language_models import Row, _parts, context_table, interval
from benchmarks.topic_prompts import TOPICS, prompts


def test_parts_of_documents_are_the_prompt() -> None:
    texts = {topic: [f"{topic} one two three", topic] for topic in TOPICS}
    for asked, _ in zip(prompts(texts, seed=0), range(20), strict=False):
        for pieces in (1, 3):
            parts = _parts(asked, pieces)
            assert len(parts) == 6 * pieces + 1
            assert "".join(parts.values()) == "".join(asked.parts.values())


def test_methods_are_compared_prompt_by_prompt() -> None:
    falls = np.random.default_rng(0).normal(size=(50, 2))
    rows = [
        Row("lrp", 2, falls + 0.5, np.ones(50)),
        Row("context-cite, 20", 20, falls, np.ones(50)),
    ]
    lines = list(context_table(rows))
    assert len(lines) == 4
    assert lines[-1].startswith("lrp less context-cite, 20: +0.500 [+0.500, +0.500]")
    assert interval(np.array([1.0, 2.0, 3.0])).startswith("+2.000 [+0.868, +3.132]")


def test_only_what_is_planted_tells_groups_apart() -> None:
    rows = [("sports", "the match ended"), ("science", "the atom split")]
    for planted, alike in ((0.0, True), (0.5, False)):
        found = pairs(rows, 2000, 0, planted)
        follows = Counter(one.group for one in found if CLASSES[one.label] == "follows")
        of_all = Counter(one.group for one in found)
        shares = [follows[group] / of_all[group] for group in NAMES]
        assert (abs(shares[0] - shares[1]) < 0.06) == alike
        for one in found:
            assert one.hypothesis.split()[0] in NAMES[one.group]
