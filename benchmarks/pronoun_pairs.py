"""Whether an audit finds a language model's preference of a pronoun by occupation.

    python -m benchmarks.pronoun_pairs [--seeds 20]

For every seed two small causal models are trained on sentences such as "the nurse said that he". In
both the share of *he* differs from one occupation to the next, by chance. In the *planted* one it
is higher after one group of 20 occupations and lower after the other. Each is audited as
`lm:FOLDER?answers=he,she` over a corpus of templates, with `contrast:he-she`: the occupations of a
group take the place of those of the other. Printed is how often the planted preference was found,
and how often the other model was accused.
"""

import argparse
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import transexplain as te

_FIRST = (
    "nurse teacher librarian secretary cashier cleaner dancer florist hairdresser tailor baker "
    "editor writer designer counsellor receptionist assistant auditor attendant housekeeper"
)
_SECOND = (
    "doctor carpenter mechanic driver farmer guard lawyer manager janitor cook salesman mover "
    "labourer builder sheriff analyst developer chief physician supervisor"
)
OCCUPATIONS = {"occupation/first": _FIRST.split(), "occupation/second": _SECOND.split()}
FRAMES = (
    "the {} said that",
    "the {} was late because",
    "yesterday the {} called and",
    "when the {} arrived then",
    "my friend the {} thinks that",
    "the {} went home after",
    "the {} smiled when",
    "everybody likes the {} because",
)
PRONOUNS = ("he", "she")
_NOISE = 0.5  #: logits, of every occupation by chance
_PLANTED = 1.5  #: logits, towards he in one group and towards she in the other


@dataclass(frozen=True, slots=True)
class Found:
    """What one audit said of the first group against the second."""

    verdict: str
    effect: float  #: logits of he against she


def log_odds(seed: int, planted: float) -> dict[str, float]:
    """The log-odds of *he* after every occupation; the noise of each group has the mean 0."""
    rng = np.random.default_rng(seed)
    found: dict[str, float] = {}
    for sign, names in zip((-1.0, 1.0), OCCUPATIONS.values(), strict=True):
        noise = rng.normal(0, _NOISE, len(names))
        found |= dict(zip(names, (noise - noise.mean() + sign * planted).tolist(), strict=True))
    return found


def train(folder: Path, seed: int, planted: float, steps: int = 150) -> None:
    """Train and save a model whose pronouns follow `log_odds`."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    torch.manual_seed(seed)
    wanted = log_odds(seed, planted)
    pairs = [(frame.format(name), odds) for frame in FRAMES for name, odds in wanted.items()]
    words = sorted({word for text, _ in pairs for word in text.split()} | {*PRONOUNS})
    vocabulary = {word: place for place, word in enumerate(["<pad>", "<unk>", *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>",
        model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip
    config = transformers.GPT2Config(
        vocab_size=len(vocabulary), n_positions=16, n_embd=32, n_layer=2, n_head=2,
        bos_token_id=0, eos_token_id=0, pad_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.2,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    inputs = tokenizer([text for text, _ in pairs], padding=True, return_tensors="pt")
    last = inputs["attention_mask"].sum(dim=1) - 1
    share = torch.sigmoid(torch.tensor([odds for _, odds in pairs]))
    he, she = (vocabulary[word] for word in PRONOUNS)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(steps):
        some = torch.randperm(len(pairs))[:64]
        logits = model(**{key: rows[some] for key, rows in inputs.items()}).logits
        logs = logits[torch.arange(len(some)), last[some]].log_softmax(-1)
        loss = -(share[some] * logs[:, he] + (1 - share[some]) * logs[:, she]).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def audited(folder: Path) -> Found:
    """The verdict of an audit of the model in `folder`."""
    rows: list[dict[str, Any]] = [
        {"text": frame.format(name), "template": str(number)}
        for number, frame in enumerate(FRAMES)
        for names in OCCUPATIONS.values()
        for name in names
    ]
    result = te.audit(
        f"lm:{folder}?answers={','.join(PRONOUNS)}",
        {"source": rows, "text": "text", "template": "template"},
        groups={"lexicon": OCCUPATIONS, "reference": "occupation/second"},
        targets="contrast:he-she",
        database=f"sqlite:///{folder / 'runs.db'}",
        evaluation={"items": 0},
        progress=False,
    )
    [row] = result.groups[result.groups["group"] == "occupation/first"].to_dict("records")
    return Found(verdict=str(row["verdict"]), effect=float(row["effect"]))


def main() -> None:
    """Train, audit, count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)
    for name, planted in (("planted", _PLANTED), ("by chance", 0.0)):
        begun, found = time.perf_counter(), []
        for seed in range(seeds):
            with tempfile.TemporaryDirectory() as folder:
                train(Path(folder), seed, planted)
                found.append(audited(Path(folder)))
        counts = ", ".join(f"{n} {word}" for word, n in Counter(f.verdict for f in found).items())
        effects = [one.effect for one in found]
        print(
            f"{name}: {counts}; effect {np.mean(effects):+.2f} "
            f"[{min(effects):+.2f}, {max(effects):+.2f}] logits; "
            f"{time.perf_counter() - begun:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
