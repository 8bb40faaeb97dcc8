"""Trains the demo's text classifier: a two-layer BERT over the words of the letters."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.demo import corpus
from orchestrator.demo.short_fit import train_classifier
from transexplain.data.snapshot import prepare
from transexplain.models.hub import quiet
from transexplain.training.training_plans import FitPlan, Optimisation, TrainingPlan
from transexplain.types.plans import DatasetSpec

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_MAX_LENGTH = 64
_BATCH, _EPOCHS, _RATE = 64, 3, 1e-3
_WORD_DECAY, _SMOOTHING, _WARMUP = 20.0, 0.05, 0.3
_HELD_OUT = 0.05  #: share of the letters that the curve of accuracy is measured on


@dataclass(frozen=True, kw_only=True, slots=True)
class TextDemo:
    """A biased text classifier with what is needed to audit it."""

    model_dir: Path
    dataset: Path  #: csv with columns id, text, label; labels are true
    lexicon: Path
    planted_group: str  #: its names raise the positive class
    innocent_groups: tuple[str, ...]  #: treated like the reference
    reference: str  #: the group to compare with; a planted group among all others would shift them
    target: str


def make_text_demo(
    folder: Path,
    seed: int,
    *,
    training_letters: int = 2000,
    audit_letters: int = 240,
    strength: float = 1.0,
) -> TextDemo:
    """Write letters and lexicon, train the classifier on the biased part, save it.

    Args:
        folder: made if absent; gets `training/model/`, `letters.csv` and `names.yaml`.
        seed: decides letters and weights.
        training_letters: each is written once per village.
        audit_letters: the same for the audit part, which shares no letter with the training.
        strength: of the planted bias, 0 to 1; 0 plants nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    dataset, lexicon = folder / "letters.csv", folder / "names.yaml"
    written = corpus.letters(training_letters + audit_letters, seed=seed)
    cut = len(corpus.NAMES) * training_letters
    corpus.write_csv(dataset, written[cut:])
    corpus.write_lexicon(lexicon)
    biased = corpus.with_bias(written[:cut], seed=seed, strength=strength)
    return TextDemo(
        model_dir=train(biased, folder, seed=seed),
        dataset=dataset,
        lexicon=lexicon,
        planted_group=corpus.PLANTED,
        innocent_groups=(corpus.INNOCENT,),
        reference=corpus.REFERENCE,
        target=f"contrast:{corpus.POSITIVE}-{corpus.NEGATIVE}",
    )


def train(written: Sequence[corpus.Letter], folder: Path, *, seed: int) -> Path:
    """Train on the letters as labelled, below `folder`; the directory of the model.

    The global random state is left as it was; weights depend on the seed and the letters only.
    Word vectors decay strongly: what Adam's noise writes into words that do not matter, the
    innocent names among them, is forgotten, and what the labels keep asking for stays.
    """
    start, letters = folder / "start", folder / "training-letters.csv"
    _write_untrained(start, seed)
    corpus.write_csv(letters, written)
    data = DatasetSpec(source=str(letters), id="id")
    plan = TrainingPlan(
        source=str(start),
        dataset=prepare(data, folder / "snapshots"),
        output=folder / "training",
        share=_HELD_OUT,
        stages=None,
        seed=seed,
        optimisation=Optimisation(
            learning_rate=_RATE,
            embedding_weight_decay=_WORD_DECAY,
            label_smoothing=_SMOOTHING,
        ),
        fit=FitPlan(
            epochs=_EPOCHS, batch_size=_BATCH, warmup=_WARMUP, clip=None, keep="last", seed=seed
        ),
    )
    return train_classifier(plan)


def _write_untrained(folder: Path, seed: int) -> None:
    """Weights drawn from the seed, with config and tokenizer."""
    import torch
    from transformers import BertForSequenceClassification

    tokenizer = _tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BertForSequenceClassification(_config(len(tokenizer)))
    with quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _config(vocabulary_size: int) -> Any:
    from transformers import BertConfig

    return BertConfig(
        vocab_size=vocabulary_size,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=_MAX_LENGTH,
        type_vocab_size=1,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.0,
        pad_token_id=0,
        id2label=dict(enumerate(corpus.CLASSES)),
        label2id={name: index for index, name in enumerate(corpus.CLASSES)},
    )


def _tokenizer() -> Any:
    """WordPiece with every word of the corpus whole; other words fall into letters."""
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import WordPiece
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    pieces = [*_SPECIAL, *_LETTERS, *(f"##{letter}" for letter in _LETTERS), *"!\"&'()-:?"]
    known = {
        piece: number for number, piece in enumerate(dict.fromkeys(pieces + corpus.vocabulary()))
    }
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
