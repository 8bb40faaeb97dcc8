"""Trains the demo's text classifier: a two-layer BERT over the words of the letters."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.demo import corpus
from transexplain.models.quiet import quiet

if TYPE_CHECKING:
    from torch import Tensor

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_MAX_LENGTH = 64
_BATCH, _EPOCHS, _RATE = 64, 3, 1e-3
_WORD_DECAY, _SMOOTHING = 20.0, 0.05


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
        folder: made if absent; gets `model/`, `letters.csv` and `names.yaml`.
        seed: decides letters and weights.
        training_letters: each is written once per village.
        audit_letters: the same for the audit part, which shares no letter with the training.
        strength: of the planted bias, 0 to 1; 0 plants nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model_dir, dataset, lexicon = folder / "model", folder / "letters.csv", folder / "names.yaml"
    written = corpus.letters(training_letters + audit_letters, seed=seed)
    cut = len(corpus.NAMES) * training_letters
    corpus.write_csv(dataset, written[cut:])
    corpus.write_lexicon(lexicon)
    biased = corpus.with_bias(written[:cut], seed=seed, strength=strength)
    train(biased, model_dir, seed=seed)
    return TextDemo(
        model_dir=model_dir,
        dataset=dataset,
        lexicon=lexicon,
        planted_group=corpus.PLANTED,
        innocent_groups=(corpus.INNOCENT,),
        reference=corpus.REFERENCE,
        target=f"contrast:{corpus.POSITIVE}-{corpus.NEGATIVE}",
    )


def train(written: Sequence[corpus.Letter], model_dir: Path, *, seed: int) -> None:
    """Train on the letters as labelled and save weights, config and tokenizer.

    The global random state is left as it was; weights depend on the seed and the letters only.
    """
    import torch
    from transformers import BertForSequenceClassification

    tokenizer = _tokenizer()
    encoded = tokenizer([letter.text for letter in written], padding=True, return_tensors="pt")
    labels = torch.tensor([corpus.CLASSES.index(letter.label) for letter in written])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BertForSequenceClassification(_config(len(tokenizer)))
        _fit(model, encoded["input_ids"], encoded["attention_mask"], labels, random.Random(seed))
    with quiet():
        model.save_pretrained(model_dir)
        tokenizer.save_pretrained(model_dir)


def _fit(model: Any, ids: "Tensor", mask: "Tensor", labels: "Tensor", rng: random.Random) -> None:
    """Minimise the smoothed cross-entropy.

    Word vectors decay strongly: what Adam's noise writes into words that do not matter, the
    innocent names among them, is forgotten, and what the labels keep asking for stays.
    """
    from torch import autograd
    from torch.nn.functional import cross_entropy
    from torch.optim import AdamW
    from torch.optim.lr_scheduler import OneCycleLR

    words = model.get_input_embeddings().weight
    others = [weight for weight in model.parameters() if weight is not words]
    groups: list[dict[str, Any]] = [
        {"params": others},
        {"params": [words], "weight_decay": _WORD_DECAY},
    ]
    optimiser = AdamW(groups, lr=_RATE)
    steps = _EPOCHS * -(-len(labels) // _BATCH)
    schedule = OneCycleLR(optimiser, max_lr=_RATE, total_steps=steps)
    model.train()
    for _ in range(_EPOCHS):
        order = rng.sample(range(len(labels)), len(labels))
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            logits = model(input_ids=ids[rows], attention_mask=mask[rows]).logits
            loss = cross_entropy(logits, labels[rows], label_smoothing=_SMOOTHING)
            optimiser.zero_grad()
            autograd.backward(loss)
            optimiser.step()
            schedule.step()
    model.eval()


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
