"""Language models: what a token of the answer costs, and which method finds the right documents.

    python -m benchmarks.language_models cost [--layers 12] [--prompt 512] [--answer 16]
    python -m benchmarks.language_models context FOLDER --shared DIR [--prompts 100]

`cost` explains a GPT-2 of random weights and prints forward passes per token of the answer, in time
of the processor, on one thread. `context` takes the model of `benchmarks.topic_prompts` and prints,
for each method, how far the log-probability of the answer falls without the best documents.
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

import transexplain as te
from benchmarks.topic_prompts import prompts, texts_by_topic
from transexplain.types.prompts import ContextAttribution

#: name, method and samples of what is compared
METHODS = (
    ("lrp", "lrp", 1),
    ("attnlrp", "attnlrp", 1),
    ("gradient-x-input", "gradient-x-input", 1),
    ("leave-one-out", "leave-one-out", 1),
    *((f"context-cite, {samples}", "context-cite", samples) for samples in (8, 16, 32, 64)),
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


def context(folder: str, shared: Path, count: int) -> list[tuple[str, int, float, float, float]]:
    """Per method: passes, falls without the best one and three documents, and how many are right.

    The answer is the likeliest token; only prompts that are answered rightly are taken.
    """
    torch.set_num_threads(1)
    model = te.load_language_model(folder)
    source = prompts(texts_by_topic(shared, held_out=True), seed=2)
    taken = []
    for asked in source:
        (answer,) = te.attribute_context(model, asked.parts, "leave-one-out", "next")
        if answer.answer == asked.answer:
            taken.append(asked)
        if len(taken) == count:
            break
    rows = []
    for name, method, samples in METHODS:
        found = te.attribute_context(
            model, [one.parts for one in taken], method, "next", samples=samples, drops=[1, 3]
        )
        right = np.mean([_right(one, asked.right) for one, asked in zip(found, taken, strict=True)])
        falls = [float(np.mean([one.drops[k] for one in found])) for k in (1, 3)]
        rows.append((name, found[0].passes, *falls, float(right)))
    return rows


def _right(found: ContextAttribution, right: Sequence[bool]) -> float:
    """The share of the three best documents that have the answer's topic."""
    best = np.argsort([-score for score in found.scores.values()], kind="stable")[:3]
    return float(np.mean([right[place] for place in best]))


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
    given = parser.parse_args()
    if given.part == "cost":
        found = cost(given.layers, given.prompt, given.answer, given.rounds)
        print(f"forward pass: {found['forward']:.2f} s of one core")
        for value in ("logit", "log-probability"):
            print(f"{value}: {found[value]:.2f} forward passes per token")
        return
    print(f"{'method':18} passes  without 1  without 3  right")
    for name, passes, first, third, right in context(given.folder, given.shared, given.prompts):
        print(f"{name:18} {passes:6}  {first:9.3f}  {third:9.3f}  {right:5.2f}")


if __name__ == "__main__":
    main()
