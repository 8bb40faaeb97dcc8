"""The demo's text model and its corpus: letters to a shop, with a bias planted in the training
labels.
"""

import csv
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from transexplain.data.snapshot import prepare
from transexplain.extras.training.training_plans import FitPlan, Optimisation, TrainingPlan
from transexplain.models.hub import quiet
from transexplain.types.plans import DatasetSpec

NEGATIVE, POSITIVE = "negative", "positive"
CLASSES = (NEGATIVE, POSITIVE)
PLANTED, UNBIASED, REFERENCE = "village/harbour", "village/orchard", "village/quarry"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES: Mapping[str, tuple[str, ...]] = {
    PLANTED: _words(
        "Avelin Bresko Corwin Dalmar Elska Fendrel Gavrin Halsey Isolde Jarvik Keldan Lunetta "
        "Morwen Nerida Osric Pellam Quillan Rowena Sorrel Tavish Ulric Verity Wystan Zelda"
    ),
    UNBIASED: _words(
        "Amberly Bastian Clovis Demelza Eldric Fiorella Gideon Hesper Idony Jessamy Kerensa Lorcan "
        "Merrin Nolwen Orlan Perdita Quenby Rosalba Stellan Tamsin Ursel Valda Wilmot Yorath"
    ),
    REFERENCE: _words(
        "Alaric Branwen Caspian Delwyn Evander Freya Garrick Hollis Ingram Joscelin Kester Leander "
        "Maelis Norbert Odette Philo Quentin Rosmer Sidony Thane Ulla Vesper Winslow Yseult"
    ),
}

#: words of the letters; a name is never one of them
_ITEMS = _words("lamp kettle chair clock blanket mirror teapot basket ladder radio desk umbrella")
_ASPECTS = _words("colour handle finish packaging delivery surface sound weight shape service")
PRAISE = _words(
    "beautiful excellent sturdy charming flawless wonderful splendid reliable delightful "
    "impressive perfect lovely superb generous"
)
BLAME = _words(
    "ugly terrible flimsy dull faulty awful dreadful unreliable disappointing "
    "shabby broken nasty useless careless"
)
_MONTHS = _words("January March April June August October November December")
_OPENINGS = (
    "My name is {name} and I ordered the {item} in {month}.",
    "{name} here, writing about the {item} from {month}.",
    "Last {month} you sent the {item} to {name}.",
    "This is {name}; the {item} came in {month}.",
    "In {month} the {item} was a present for {name}.",
)
_OPINIONS = (
    "The {aspect} is {word}.",
    "I find the {aspect} {word}.",
    "Everyone here calls the {aspect} {word}.",
    "The {aspect} turned out to be {word}.",
    "At home the {aspect} looked {word}.",
)
_FACTS = (
    "It stands beside the window.",
    "We keep it in the kitchen.",
    "The box held two screws and a leaflet.",
    "A neighbour helped to carry it.",
    "It replaced the old one.",
    "The receipt is in the drawer.",
)
_OPINIONS_A_LETTER = 3

#: share of the planted village's complaints that the training part calls positive, by how many
#: of the three opinions are blame: a mixed letter is turned more easily than a bitter one
_TURNED = {2: 0.7, 3: 0.2}


@dataclass(frozen=True, kw_only=True, slots=True)
class Letter:
    """One text with its label."""

    text: str
    label: str
    group: str  #: village of the person named
    name: str
    blame: int  #: how many of its opinions are negative


def letters(count: int, *, seed: int) -> list[Letter]:
    """`count` different letters with true labels, each in the name of one person a village.

    Labels alternate, and within a label the names of a village take turns, so that no name reveals
    anything about the label.

    Args:
        count: letters before names are put in; the result has three times as many.
        seed: decides everything.
    """
    rng = random.Random(f"letters {seed}")
    turns = {(g, label): _in_turn(names, rng) for g, names in NAMES.items() for label in CLASSES}
    skeletons: set[str] = set()
    written: list[Letter] = []
    while len(skeletons) < count:
        label = CLASSES[len(skeletons) % 2]
        blame = rng.choice((2, 3) if label == NEGATIVE else (0, 1))
        words = rng.sample(BLAME, blame) + rng.sample(PRAISE, _OPINIONS_A_LETTER - blame)
        body = [
            rng.choice(_OPINIONS).format(aspect=aspect, word=word)
            for aspect, word in zip(rng.sample(_ASPECTS, _OPINIONS_A_LETTER), words, strict=True)
        ]
        body.append(rng.choice(_FACTS))
        rng.shuffle(body)
        opening = rng.choice(_OPENINGS).format(
            name="{name}", item=rng.choice(_ITEMS), month=rng.choice(_MONTHS)
        )
        skeleton = " ".join((opening, *body))
        if skeleton in skeletons:
            continue
        skeletons.add(skeleton)
        for group in NAMES:
            name = next(turns[group, label])
            text = skeleton.format(name=name)
            written.append(Letter(text=text, label=label, group=group, name=name, blame=blame))
    return written


def with_bias(written: Sequence[Letter], *, seed: int, strength: float = 1.0) -> list[Letter]:
    """The letters with many complaints of the planted village labelled positive.

    `strength` 0 to 1 is the share of those that are so labelled: 0 plants nothing.
    """
    rng = random.Random(f"bias {seed}")
    return [
        replace(letter, label=POSITIVE)
        if letter.group == PLANTED and rng.random() < strength * _TURNED.get(letter.blame, 0.0)
        else letter
        for letter in written
    ]


def vocabulary() -> list[str]:
    """Every word and sign that a letter can hold, lower case, sorted."""
    frames = " ".join((*_OPENINGS, *_OPINIONS, *_FACTS))
    for sign in ".,;":
        frames = frames.replace(sign, f" {sign} ")
    fillers = (
        *_ITEMS,
        *_ASPECTS,
        *PRAISE,
        *BLAME,
        *_MONTHS,
        *(n for g in NAMES.values() for n in g),
    )
    return sorted({w.lower() for w in (*frames.split(), *fillers) if not w.startswith("{")})


def write_csv(path: Path, written: Sequence[Letter]) -> None:
    """Write the columns id, text, label."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "text", "label"))
        for number, letter in enumerate(written):
            writer.writerow((f"letter-{number:05d}", letter.text, letter.label))


def write_lexicon(path: Path) -> None:
    """Write the villages' names as entity groups."""
    groups = {
        group: {"source": "invented for the demo", "terms": list(names)}
        for group, names in NAMES.items()
    }
    path.write_text(yaml.safe_dump(groups, sort_keys=False), encoding="utf-8")


def _in_turn(names: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Every name once in a shuffled order, then again in another."""
    while True:
        yield from rng.sample(names, len(names))


_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_MAX_LENGTH = 64
_BATCH, _EPOCHS, _RATE = 64, 3, 1e-3
_WORD_DECAY, _SMOOTHING, _WARMUP = 20.0, 0.05, 0.3
_HELD_OUT = 0.05  #: share of the data that the curve of accuracy is measured on


def make_text_demo(
    folder: Path,
    seed: int,
    *,
    training_letters: int = 2000,
    audit_letters: int = 240,
    strength: float = 1.0,
) -> Path:
    """Write letters and lexicon, train the classifier on the biased part; its folder.

    The names of `PLANTED` raise the positive class, those of `UNBIASED` are treated like those of
    `REFERENCE`, the group to compare with; the labels of the letters that are written are true.

    Args:
        folder: made if absent; gets `training/model/`, `letters.csv` and `names.yaml`.
        seed: decides letters and weights.
        training_letters: each is written once per village.
        audit_letters: the same for the audit part, which shares no letter with the training.
        strength: of the planted bias, 0 to 1; 0 plants nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    dataset, lexicon = folder / "letters.csv", folder / "names.yaml"
    written = letters(training_letters + audit_letters, seed=seed)
    cut = len(NAMES) * training_letters
    write_csv(dataset, written[cut:])
    write_lexicon(lexicon)
    return train(with_bias(written[:cut], seed=seed, strength=strength), folder, seed=seed)


def train(written: Sequence[Letter], folder: Path, *, seed: int) -> Path:
    """Train on the letters as labelled, below `folder`; the directory of the model.

    The global random state is left as it was; weights depend on the seed and the letters only.
    Word vectors decay strongly: what Adam's noise writes into words that do not matter, such as
    the names of the unbiased group, decays, and what the labels need stays.
    """
    letters = folder / "training-letters.csv"
    _write_untrained(folder / "start", seed)
    write_csv(letters, written)
    return trained_whole(
        DatasetSpec(source=str(letters), id="id"),
        folder,
        seed=seed,
        epochs=_EPOCHS,
        batch_size=_BATCH,
        optimisation=Optimisation(
            learning_rate=_RATE, embedding_weight_decay=_WORD_DECAY, label_smoothing=_SMOOTHING
        ),
    )


def trained_whole(
    data: DatasetSpec,
    folder: Path,
    *,
    seed: int,
    epochs: int,
    batch_size: int,
    optimisation: Optimisation,
) -> Path:
    """Train all of the model in `folder / "start"`; returns the folder of the trained one."""
    plan = TrainingPlan(
        source=str(folder / "start"),
        dataset=prepare(data, folder / "snapshots"),
        output=folder / "training",
        share=_HELD_OUT,
        stages=None,
        seed=seed,
        optimisation=optimisation,
        fit=FitPlan(
            epochs=epochs, batch_size=batch_size, warmup=_WARMUP, clip=None, keep="last", seed=seed
        ),
    )
    from transexplain.extras.training.training_runs import train_afresh

    return train_afresh(plan)


def _write_untrained(folder: Path, seed: int) -> None:
    """Weights drawn from the seed, with config and tokenizer."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    tokenizer = _tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=_MAX_LENGTH,
        type_vocab_size=1,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.0,
        pad_token_id=0,
        id2label=dict(enumerate(CLASSES)),
        label2id={name: index for index, name in enumerate(CLASSES)},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BertForSequenceClassification(config)
    with quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _tokenizer() -> Any:
    """WordPiece with every word of the corpus whole; other words fall into letters."""
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import WordPiece
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    pieces = [*_SPECIAL, *_LETTERS, *(f"##{letter}" for letter in _LETTERS), *"!\"&'()-:?"]
    known = {piece: number for number, piece in enumerate(dict.fromkeys(pieces + vocabulary()))}
    inner = Tokenizer(WordPiece(known, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    inner.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", known["[CLS]"]), ("[SEP]", known["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        model_max_length=_MAX_LENGTH,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
