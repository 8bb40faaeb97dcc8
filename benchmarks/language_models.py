"""Language models: what a token of the answer costs, and which method finds the right documents.

    python -m benchmarks.language_models cost [--layers 12] [--prompt 512] [--answer 16]
    python -m benchmarks.language_models context FOLDER --shared DIR [--prompts 100]

`cost` explains a GPT-2 of random weights and prints forward passes per token of the answer, in time
of the processor, on one thread. `context` takes the model of `benchmarks.topic_prompts` and prints,
for each method, how far the log-probability of the answer falls without the best documents (or
without the best parts of them, `--pieces`): the mean over prompts with a 95 % interval, and the
differences of each method to ContextCite's, prompt by prompt.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import transexplain as te
from benchmarks.topic_prompts import QUESTION, Asked, prompts, texts_by_topic
from transexplain.types.prompts import ContextAttribution
from transexplain.types.scores import MethodSpec

#: name, method and samples of what is compared
METHODS: tuple[tuple[str, str | MethodSpec, int], ...] = (
    ("lrp", "lrp", 1),
    ("lrp, gamma 0.1", MethodSpec(name="lrp", params={"gamma": 0.1}), 1),
    ("attnlrp", "attnlrp", 1),
    ("gradient-x-input", "gradient-x-input", 1),
    ("leave-one-out", "leave-one-out", 1),
    *((f"context-cite, {samples}", "context-cite", samples) for samples in (20, 32, 64, 256)),
)


def cost(layers: int, prompt: int, answer: int, rounds: int) -> dict[str, float]:
    """Seconds of a forward pass, and forward passes per token, shared and as copies."""
    import transformers

    torch.set_num_threads(1)
    config = transformers.GPT2Config(n_layer=layers, n_positions=prompt + answer)
    module = transformers.GPT2LMHeadModel(config).eval()
    model = te.load_language_model(module)
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 50_000, prompt + answer).tolist()
    whole = torch.tensor([ids[:-1]])
    target = {"continuation": ids[prompt:]}

    def forward() -> None:
        with torch.no_grad():
            module(input_ids=whole, use_cache=False, logits_to_keep=answer)

    def shared(value: str) -> Callable[[], object]:
        return lambda: te.explain_answers(
            model, {"input_ids": ids[:prompt]}, target=target, value=value
        )

    seconds = {"forward": _seconds(forward, rounds)}
    for value in ("logit", "log-probability"):
        taken = _seconds(shared(value), 1)
        seconds[value] = taken / seconds["forward"] / answer
    return seconds


def _seconds(run: Callable[[], object], rounds: int) -> float:
    """Processor time of one call, the least of some: other programs may hold this one up."""
    taken = []
    for _ in range(rounds):
        begun = time.process_time()
        run()
        taken.append(time.process_time() - begun)
    return min(taken)


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of one method, an entry for each of N prompts."""

    name: str
    passes: int
    falls: NDArray[np.float64]  #: (N, 2) nats, without the best part and without the best three
    right: NDArray[np.float64]  #: (N,) share of the best three that have the answer's topic


def context(folder: str, shared: Path, count: int, pieces: int, seed: int) -> list[Row]:
    """A row for each method, over the first `count` held-out prompts that are answered rightly.

    The answer is the likeliest token. Each document is cut into `pieces` parts.
    """
    torch.set_num_threads(1)
    model = te.load_language_model(folder)
    taken: list[Asked] = []
    for asked in prompts(texts_by_topic(shared, held_out=True), seed=seed):
        (answer,) = te.explain_answers(model, asked.parts)
        if answer.token == asked.answer:
            taken.append(asked)
        if len(taken) == count:
            break
    given = [_parts(one, pieces) for one in taken]
    rows = []
    for name, method, samples in METHODS:
        found = te.attribute_context(model, given, method, "next", samples=samples, drops=[1, 3])
        falls = np.array([[one.drops[1], one.drops[3]] for one in found])
        right = [_right(one, asked.right) for one, asked in zip(found, taken, strict=True)]
        rows.append(Row(name, found[0].passes, falls, np.array(right)))
    return rows


def _parts(asked: Asked, pieces: int) -> dict[str, str]:
    """The prompt's parts by name, its documents cut into so many; together they are the prompt."""
    found: dict[str, str] = {}
    for place, text in enumerate(asked.documents):
        cuts = np.array_split(text.split(), pieces)
        for number, words in enumerate(cuts):
            end = "\n" if number == pieces - 1 else ""
            found[f"{place}.{number}"] = " " * bool(number and len(words)) + " ".join(words) + end
    return {**found, "question": QUESTION}


def _right(found: ContextAttribution, right: Sequence[bool]) -> float:
    """The share of the three best parts that are of documents with the answer's topic."""
    best = sorted(found.scores, key=lambda name: -found.scores[name])[:3]
    return float(np.mean([right[int(name.partition(".")[0])] for name in best]))


def interval(values: NDArray[np.float64]) -> str:
    """The mean over N prompts with its 95 % interval."""
    half = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.3f} [{values.mean() - half:+.3f}, {values.mean() + half:+.3f}]"


def context_table(rows: Sequence[Row]) -> Iterator[str]:
    """The lines that `context` prints: every method, then this package's against ContextCite."""
    yield f"{'method':18} passes  {'without the best':26}  {'without the best 3':26}  right"
    for row in rows:
        one, three = map(interval, row.falls.T)
        yield f"{row.name:18} {row.passes:6}  {one:26}  {three:26}  {row.right.mean():5.2f}"
    for row in (one for one in rows if not one.name.startswith("context-cite")):
        for other in (one for one in rows if one.name.startswith("context-cite")):
            one, three = map(interval, (row.falls - other.falls).T)
            yield f"{row.name} less {other.name}: {one}, of 3 {three}"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("cost")
    one.add_argument("--layers", type=int, default=12)
    one.add_argument("--prompt", type=int, default=512)
    one.add_argument("--answer", type=int, default=16)
    one.add_argument("--rounds", type=int, default=3)
    two = parts.add_parser("context")
    two.add_argument("folder")
    two.add_argument("--shared", type=Path, default=os.environ.get("TRANSEXPLAIN_SHARED"))
    two.add_argument("--prompts", type=int, default=100)
    two.add_argument("--pieces", type=int, default=1, help="parts of a document")
    two.add_argument("--seed", type=int, default=2, help="of the prompts")
    given = parser.parse_args()
    if given.part == "cost":
        found = cost(given.layers, given.prompt, given.answer, given.rounds)
        print(f"forward pass: {found['forward']:.2f} s of one core")
        for value in ("logit", "log-probability"):
            print(f"{value}: {found[value]:.2f} forward passes per token")
        return
    for line in context_table(
        context(given.folder, given.shared, given.prompts, given.pieces, given.seed)
    ):
        print(line)


if __name__ == "__main__":
    main()
