"""Texts whose answer is a sum that a test sets, and a BERT with weights set to give that sum.

Every text has `WORDS` words and each adds its worth to the log-odds of being invited. A name may
add its worth in one stratum and the opposite in the other. The model reads what this file says
within a thousandth: so what a name does is known, and no training is waited for.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

CLASSES = ("rejected", "invited")
TARGET = "contrast:invited-rejected"
WORDS = 7  #: of every text
#: two groups of twelve names, and words that speak for an invitation or against it
FIRST, SECOND = "people/first", "people/second"
PEOPLE = {
    FIRST: [a + b for a in ("Ba", "Ce", "Di", "Fo") for b in ("lino", "riella", "tari")],
    SECOND: [a + b for a in ("Gu", "Ha", "Je", "Ki") for b in ("morth", "sank", "pwyn")],
}
GOOD = ("careful", "punctual", "skilled", "patient", "honest", "diligent", "able", "eager")
BAD = ("careless", "late", "clumsy", "rude", "evasive", "idle", "hasty", "sloppy")
WORTH = {**dict.fromkeys(GOOD, 0.8), **dict.fromkeys(BAD, -0.8)}
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_HIDDEN = 16  #: components come in pairs of opposite sign, so that no mean is left to take away
_SUM, _NAME, _PLACE, _REST = 0, 2, 4, 6  #: the pairs: worth, turning name, turning place, the rest
_SMALL = 0.05  #: of a sum beside what stands in `_REST`: layer norm and tanh leave it as it is
_READ = WORDS + 2  #: positions, with [CLS] and [SEP]
_TURNED = -2.0  #: added to a turning name, which is worth 1 logit, where it turns


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """One text, and what the columns beside it hold."""

    words: tuple[str, ...]
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def written(self) -> str:
        """The text itself."""
        return " ".join(self.words)


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """Texts, the groups that they mention, and what every word does to the answer."""

    texts: Sequence[Text]
    groups: Mapping[str, Sequence[str]]
    worth: Mapping[str, float] = field(default_factory=dict)  #: of words and names; else 0
    turning: Sequence[str] = ()  #: names whose worth has the opposite sign beside `turn`
    turn: str = ""

    def scores(self, text: Text) -> list[float]:
        """What every word adds to the log-odds of being invited."""
        sign = -1.0 if self.turn in text.words else 1.0
        return [
            self.worth.get(word, 0.0) * (sign if word in self.turning else 1.0)
            for word in text.words
        ]

    def write_texts(self, path: Path) -> str:
        """The data of a run."""
        rows = ({"text": text.written, **text.columns} for text in self.texts)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return str(path)

    def write_attributions(self, path: Path) -> str:
        """The same as attributions made elsewhere: no model, each word with its worth."""
        rows = (self._row(text) for text in self.texts)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return str(path)

    def _row(self, text: Text) -> dict[str, Any]:
        scores = self.scores(text)
        total = sum(scores)
        return {
            "text": text.written,
            "tokens": list(text.words),
            "scores": scores,
            "target": TARGET,
            "class": CLASSES[1],
            "prediction": CLASSES[total > 0],
            "logits": [-total / 2, total / 2],
            **text.columns,
        }

    def write_lexicon(self, path: Path) -> str:
        """The groups."""
        groups = {name: list(terms) for name, terms in self.groups.items()}
        path.write_text(json.dumps(groups), encoding="utf-8")
        return str(path)

    def write_model(self, folder: Path) -> str:
        """A BERT of one layer that answers so, with its tokenizer."""
        words = sorted({word for text in self.texts for word in text.words})
        names = [name for terms in self.groups.values() for name in terms]
        vocabulary = list(dict.fromkeys((*_SPECIAL, *words, *names)))
        _tokenizer(vocabulary).save_pretrained(folder)
        _model(self, vocabulary).save_pretrained(folder)
        return str(folder)


def _tokenizer(vocabulary: Sequence[str]) -> "transformers.PreTrainedTokenizerFast":
    numbers = {word: number for number, word in enumerate(vocabulary)}
    inner = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=False)
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = ("pad", "unk", "cls", "sep")
    tokens = {f"{name}_token": token for name, token in zip(names, _SPECIAL, strict=True)}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **tokens)


def _model(world: World, vocabulary: Sequence[str]) -> Any:
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=_HIDDEN,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=4,
        hidden_act="relu",
        max_position_embeddings=2 * _READ,
        type_vocab_size=1,
        id2label=dict(enumerate(CLASSES)),
        label2id={name: number for number, name in enumerate(CLASSES)},
    )
    model = transformers.BertForSequenceClassification(config).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.fill_(1.0 if name.endswith("LayerNorm.weight") else 0.0)
        words = model.bert.embeddings.word_embeddings.weight
        for place, word in enumerate(vocabulary):
            words[place] = torch.tensor(_embedding(world, word))
        _set_attention(model.bert.encoder.layer[0].attention)
        _set_turning(model.bert.encoder.layer[0])
        model.bert.pooler.dense.weight[0, _SUM] = 1.0
        # the head's two logits are half the log-odds apart either way
        model.classifier.weight[:, 0] = torch.tensor([-0.5, 0.5]) * _READ / _SMALL
    return model


def _embedding(world: World, word: str) -> list[float]:
    """A vector of mean 0 and mean square 1, which layer norm leaves as it is."""
    values = [0.0] * _HIDDEN
    parts = {
        _SUM: world.worth.get(word, 0.0),
        _NAME: float(word in world.turning),
        _PLACE: float(word == world.turn),
    }
    parts[_REST] = math.sqrt(_HIDDEN / 2 - sum(value**2 for value in parts.values()))
    for place, value in parts.items():
        values[place], values[place + 1] = value, -value
    return values


def _set_attention(attention: Any) -> None:
    """Every position reads the mean of the first three pairs of all."""
    for place in range(_REST):
        attention.self.value.weight[place, place] = 1.0
        attention.output.dense.weight[place, place] = _SMALL


def _set_turning(layer: Any) -> None:
    """Where a turning name meets the turn, twice its value is subtracted."""
    for place in (_NAME, _PLACE):
        layer.intermediate.dense.weight[0, place] = _READ / _SMALL
    layer.intermediate.dense.bias[0] = -1.0
    layer.output.dense.weight[_SUM, 0] = _TURNED * _SMALL / _READ
    layer.output.dense.weight[_SUM + 1, 0] = -_TURNED * _SMALL / _READ
