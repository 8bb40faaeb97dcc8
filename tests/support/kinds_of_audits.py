"""Small audits of each kind: pairs, several labels, labels of tokens, answers, and two towers.

All models have random weights; labels of the data are given so that some are right.
"""

import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import tiny_towers
import torch
import transformers
from tiny_audit import make_audit, texts
from tiny_models import SIZES, bert, wordpiece

import transexplain as te

TYPES = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
LABELS = ("toxic", "insult", "threat")
Row = dict[str, Any]


def tagger(seed: int = 0) -> Any:
    """A random model of two types of entities."""
    module = _random(transformers.BertForTokenClassification, seed, id2label=dict(enumerate(TYPES)))
    with torch.no_grad():
        module.classifier.weight.normal_(std=1.0)
    return module


def reader(seed: int = 0) -> Any:
    """A random model that marks answers to questions."""
    module = _random(transformers.BertForQuestionAnswering, seed)
    with torch.no_grad():
        module.qa_outputs.weight.normal_(std=1.0)
    return module


def _random(kind: Any, seed: int, **more: Any) -> Any:
    torch.manual_seed(seed)
    settings = {"vocab_size": 18, "max_position_embeddings": 40, **SIZES, **more}
    return kind(transformers.BertConfig(**settings)).eval()


def several(seed: int = 0, **config: Any) -> Any:
    """A random model whose labels come and go."""
    module = bert(
        id2label=dict(enumerate(LABELS)), problem_type="multi_label_classification", **config
    )
    generator = torch.Generator().manual_seed(seed)
    given = wordpiece()(texts(40), padding=True, return_tensors="pt")
    with torch.no_grad():
        module.classifier.weight.normal_(std=4.0, generator=generator)
        # between two texts: the probability of none is a threshold
        module.classifier.bias.sub_(module(**given).logits.quantile(0.5, dim=0))
    return module


def _pairs_model(seed: int) -> Any:
    module = bert(id2label={0: "no", 1: "maybe", 2: "yes"})
    generator = torch.Generator().manual_seed(seed)
    first, second = map(list, zip(*pairwise(texts(41)), strict=True))
    most = module.config.max_position_embeddings
    given = wordpiece()(
        first, second, padding=True, truncation=True, max_length=most, return_tensors="pt"
    )
    with torch.no_grad():
        module.classifier.weight.normal_(std=4.0, generator=generator)
        module.classifier.bias.sub_(module(**given).logits.mean(dim=0))  # so that all come
    return module


def tagged_rows() -> list[Row]:
    """Every second word is a PER."""
    rows = []
    for text in texts(40):
        cuts = [0, *(place + 1 for place, one in enumerate(text) if one == " "), len(text) + 1]
        rows.append({"text": text, "label": [[a, b - 1, "PER"] for a, b in pairwise(cuts)][::2]})
    return rows


def _labelled_rows() -> list[Row]:
    return [
        {"text": text, "label": [one for place, one in enumerate(LABELS) if (i >> place) & 1]}
        for i, text in enumerate(texts(40))
    ]


def _pair_rows() -> list[Row]:
    some = texts(41)
    return [
        {"premise": a, "hypothesis": b, "label": ("no", "maybe", "yes")[i % 3]}
        for i, (a, b) in enumerate(pairwise(some))
    ]


def question_rows() -> list[Row]:
    """Answers: what the model of seed 0 finds, a word more than that, another word, or none."""
    model = te.wrap(reader(), tokenizer=wordpiece())
    pairs = list(pairwise(texts(41)))
    rows: list[Row] = []
    for number, one in enumerate(te.explain(model, pairs)):
        assert one.text is not None
        start, _, end = one.notes[0].removeprefix("explains the answer, characters ").split()
        answer = one.text[int(start) : int(end)]
        given: list[Any] = [{"text": [answer], "answer_start": [0]}, f"{answer} unseen", "unseen"]
        question, context = pairs[number]
        rows.append({"question": question, "context": context, "label": [*given, None][number % 4]})
    return rows


CAPTIONS = ("the film was good", "she said he said")


def _towers(seed: int) -> Any:
    return tiny_towers.towers(dtype=torch.float32, seed=seed)


def _picture_rows() -> list[Row]:
    """Pictures of noise; in each a region of either group."""
    boxes = [[0.0, 0.0, 0.5, 0.5, "half/left", "l"], [0.5, 0.5, 1.0, 1.0, "half/right", "r"]]
    return [
        {"image": f"{number}.png", "label": CAPTIONS[number % 2], "spans": boxes}
        for number in range(40)
    ]


#: kind -> its model by seed, its rows, and what its specification has of its own
KINDS: Mapping[str, tuple[Callable[[int], Any], Callable[[], list[Row]], dict[str, Any]]] = {
    "pairs": (_pairs_model, _pair_rows, {"text": ["premise", "hypothesis"]}),
    "labels": (several, _labelled_rows, {}),
    "tokens": (tagger, tagged_rows, {}),
    "answers": (reader, question_rows, {"text": ["question", "context"]}),
    "towers": (_towers, _picture_rows, {"image": "image", "spans": "spans"}),
}


def audit_of(kind: str, folder: Path, seed: int = 0, **keys: Any) -> Path:
    """Write the audit of a kind into `folder`; its specification."""
    make, rows, data = KINDS[kind]
    source = {"source": str(folder / "texts.jsonl"), "label": "label", **data}
    given = {"targets": ["predicted"], "name": kind, "data": source, **keys}
    if kind == "towers":
        given["model"] = f"towers:{folder / 'model'}?texts={';'.join(CAPTIONS)}"
        given["groups"] = {"reference": "half/right"}
    path = make_audit(folder, **given)
    make(seed).save_pretrained(folder / "model")
    if kind == "towers":
        tiny_towers.tokenizer().save_pretrained(folder / "model")
        tiny_towers.processor().save_pretrained(folder / "model")
        for number in range(40):
            tiny_towers.picture(number).save(folder / f"{number}.png")
    text = "".join(json.dumps(row) + "\n" for row in rows())
    (folder / "texts.jsonl").write_text(text, encoding="utf-8")
    return path
