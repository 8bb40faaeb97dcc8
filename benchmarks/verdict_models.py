"""Classifiers that learnt a known corpus, and what they do to names: measured, not guessed."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from benchmarks.verdict_corpora import (
    CLASSES,
    FIRST,
    INVITED,
    NAMES,
    POSTS,
    SECOND,
    Application,
    People,
    syllables,
    vocabulary,
)
from transexplain.data.snapshot import prepare
from transexplain.extras.training.training_plans import FitPlan, Optimisation, TrainingPlan
from transexplain.models.hub import quiet
from transexplain.types.plans import DatasetSpec

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MAX_LENGTH = 96
_BATCH = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """The shape of a small BERT."""

    hidden: int
    layers: int


SIZES = (Size(hidden=32, layers=1), Size(hidden=64, layers=2), Size(hidden=96, layers=3))


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How one classifier is trained."""

    size: Size | None  #: None: fine-tuned from `start`
    whole_names: bool  #: each name is one piece; else it falls into syllables
    decay: float  #: weight decay
    seed: int
    start: str = ""  #: directory of a trained model


@dataclass(frozen=True, kw_only=True, slots=True)
class Truth:
    """What a classifier does, by asking it about every name in every text.

    Effects are of a name of the first group instead of one of the second, in logits of being
    invited (against being rejected), averaged over names and texts.
    """

    effect: float
    effects: dict[str, float]  #: by stratum
    widest: float  #: the largest effect of a single name against the mean name, in size
    impact_ratio: float  #: of the first group's predicted invitations to the second's, or inverse
    accuracy: float


def train(written: Sequence[Application], people: People, folder: Path, recipe: Recipe) -> Path:
    """Train all weights, random ones or those of `recipe.start`; the model is below `folder`."""
    from transexplain.extras.training.training_runs import train as train_plan

    start, texts = Path(recipe.start or folder / "start"), folder / "training.csv"
    if not recipe.start:
        _write_untrained(start, people, recipe)
    write_csv(texts, written)
    plan = TrainingPlan(
        source=str(start),
        dataset=prepare(DatasetSpec(source=str(texts), id="id"), folder / "snapshots"),
        output=folder / "training",
        classes=CLASSES,
        share=0.05,
        stages=None,
        seed=recipe.seed,
        optimisation=Optimisation(
            learning_rate=1e-4 if recipe.start else 1e-3, weight_decay=recipe.decay
        ),
        fit=FitPlan(epochs=4, batch_size=32, keep="last", seed=recipe.seed),
    )
    return Path(train_plan(plan).model)


def write_csv(path: Path, written: Sequence[Application]) -> None:
    """Write the columns id, text, label, post, author, group."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "text", "label", "post", "author", "group"))
        for number, one in enumerate(written):
            row = (f"{number:05d}", one.written, one.label, one.post, one.author, one.group)
            writer.writerow(row)


def write_lexicon(path: Path, people: People) -> None:
    """Write both groups as a lexicon."""
    groups = {
        group: {"source": "invented", "terms": list(names)} for group, names in people.names.items()
    }
    path.write_text(yaml.safe_dump(groups, sort_keys=False), encoding="utf-8")


def truth_of(model_dir: Path, people: People, texts: Sequence[Application], ask: int) -> Truth:
    """Swap every name into the first `ask` texts, and count the answers to all of them."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForSequenceClassification.from_pretrained(model_dir).eval()
    names = [name for group in (FIRST, SECOND) for name in people.names[group]]
    requested = texts[:ask]
    swapped = [
        one.named(_cast(people, name, len(one.names))) for one in requested for name in names
    ]
    logits = _answers(model, tokenizer, swapped).reshape(len(requested), len(names))
    by_text = logits[:, :NAMES].mean(axis=1) - logits[:, NAMES:].mean(axis=1)
    by_name = (logits - logits.mean(axis=1, keepdims=True)).mean(axis=0)
    posts = np.array([one.post for one in requested])
    answers = _answers(model, tokenizer, [one.written for one in texts]) > 0.0
    first = np.array([one.group == FIRST for one in texts])
    rates = answers[first].mean(), answers[~first].mean()
    right = answers == np.array([one.label == INVITED for one in texts])
    return Truth(
        effect=float(by_text.mean()),
        effects={post: float(by_text[posts == post].mean()) for post in POSTS},
        widest=float(np.abs(by_name).max()),
        impact_ratio=float(min(rates) / max(rates)) if max(rates) else 1.0,
        accuracy=float(right.mean()),
    )


def _cast(people: People, name: str, size: int) -> list[str]:
    """`size` names of one group, beginning with this one."""
    [group] = (group for group, names in people.names.items() if name in names)
    names = people.names[group]
    place = names.index(name)
    return [names[(place + step) % len(names)] for step in range(size)]


def _answers(model: Any, tokenizer: Any, texts: Sequence[str]) -> NDArray[np.float64]:
    """(texts,) the logit of being invited minus that of being rejected."""
    import torch

    invited = CLASSES.index(INVITED)
    lengths = np.argsort([len(text) for text in texts], kind="stable")
    found = np.empty(len(texts))
    with torch.inference_mode():
        for start in range(0, len(texts), _BATCH):
            places = lengths[start : start + _BATCH]
            encoded = tokenizer([texts[place] for place in places], padding=True)
            inputs = {name: torch.tensor(encoded[name]) for name in ("input_ids", "attention_mask")}
            logits = model(**inputs).logits.double().numpy()
            found[places] = logits[:, invited] - logits[:, 1 - invited]
    return found


def _write_untrained(folder: Path, people: People, recipe: Recipe) -> None:
    """Weights drawn from the seed, with config and tokenizer."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    assert recipe.size is not None
    tokenizer = _tokenizer(people, recipe.whole_names)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.size.hidden,
        num_hidden_layers=recipe.size.layers,
        num_attention_heads=4,
        intermediate_size=2 * recipe.size.hidden,
        max_position_embeddings=_MAX_LENGTH,
        type_vocab_size=1,
        attention_probs_dropout_prob=0.0,
        pad_token_id=0,
        id2label=dict(enumerate(CLASSES)),
        label2id={name: index for index, name in enumerate(CLASSES)},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = BertForSequenceClassification(config)
    with quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _tokenizer(people: People, whole_names: bool) -> Any:
    """WordPiece that knows the words of the texts, and names whole or by their syllables."""
    from tokenizers import Tokenizer, normalizers, pre_tokenizers
    from tokenizers.models import WordPiece
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    parts = [form for one in syllables() for form in (one, f"##{one}")]
    if whole_names:
        parts = [name.lower() for names in people.names.values() for name in names]
    letters = [form for letter in _LETTERS for form in (letter, f"##{letter}")]
    pieces = [*_SPECIAL, *letters, *".,:;", *parts, *vocabulary()]
    known = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    inner = Tokenizer(WordPiece(known, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", known["[CLS]"]), ("[SEP]", known["[SEP]"])],
    )
    tokens = dict(zip(("pad", "unk", "cls", "sep", "mask"), _SPECIAL, strict=True))
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        model_max_length=_MAX_LENGTH,
        **{f"{name}_token": token for name, token in tokens.items()},
    )
