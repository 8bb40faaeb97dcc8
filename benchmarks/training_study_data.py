"""Data and backbones of the training study: disjoint parts of SST-2 and CIFAR-10."""

import csv
import gzip
import json
import random
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transexplain.models.hub import quiet

SENTENCES = 20_000  #: the longest distinct texts; the others are phrases
PICTURES = 500  #: of a class, in each half of the training pictures
TESTED = 200  #: pictures of a class that are measured on
_VOCABULARY = 8_000
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_TEXT = {
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "max_position_embeddings": 64,
    "type_vocab_size": 1,
}
_VISION: dict[str, Any] = {
    "img_size": 32,
    "patch_size": 4,
    "in_chans": 3,
    "embed_dim": 96,
    "depth": 4,
    "num_heads": 4,
    "mlp_ratio": 4.0,
    "qkv_bias": True,
    "class_token": True,
    "global_pool": "token",
}
_ARCHITECTURES = {
    "vit": "timm.models.vision_transformer.VisionTransformer",
    "deit-distilled": "timm.models.deit.VisionTransformerDistilled",
}
_MEAN, _STD = [0.4914, 0.4822, 0.4465], [0.247, 0.2435, 0.2616]

Rows = Sequence[tuple[str, str]]


def write_texts(shared: Path, out: Path) -> None:
    """Write phrases.tsv (stage 1), sentences.tsv (stage 2) and dev.tsv (measured on).

    No text is in two of them; a phrase may still be a part of a sentence, as SST-2 has it.
    """
    seen = dict(reversed(row) for row in _rows(shared / "text/sst2_train.tsv.gz"))
    dev = [(label, text) for label, text in _rows(shared / "text/sst2_dev.tsv.gz")]
    for _, text in dev:
        seen.pop(text, None)
    ordered = sorted(seen, key=lambda text: (-len(text.split()), text))
    out.mkdir(parents=True, exist_ok=True)
    for name, texts in (("sentences", ordered[:SENTENCES]), ("phrases", ordered[SENTENCES:])):
        shuffled = random.Random(0).sample(texts, len(texts))
        _write(out / f"{name}.tsv", [(seen[text], text) for text in shuffled])
    _write(out / "dev.tsv", dev)


def write_pictures(shared: Path, out: Path) -> None:
    """Write folders first/ and second/ (halves of the training part) and test/."""
    with zipfile.ZipFile(shared / "images/cifar10_jpg.zip") as archive:
        for name in archive.namelist():
            part, label, file = name.split("/")
            number = int(Path(file).stem)
            half = "first" if number % 2 == 0 else "second"
            if part == "test" and number >= TESTED:
                continue
            target = out / ("test" if part == "test" else half) / label / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))


def write_random_bert(folder: Path, phrases: Path, seed: int) -> None:
    """A small BERT with drawn weights and a WordPiece vocabulary learned from the phrases."""
    import torch
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    inner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=_VOCABULARY, special_tokens=list(_SPECIAL), show_progress=False
    )
    inner.train_from_iterator((text for _, text in _read(phrases)), trainer)
    inner.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        model_max_length=_TEXT["max_position_embeddings"],
        **{f"{name.strip('[]').lower()}_token": name for name in _SPECIAL},
    )
    torch.manual_seed(seed)
    names = dict(enumerate(("negative", "positive")))
    config = BertConfig(
        vocab_size=len(tokenizer),
        **_TEXT,
        id2label=names,
        label2id={name: index for index, name in names.items()},
    )
    with quiet():
        BertForSequenceClassification(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def write_random_vision(folder: Path, kind: str, classes: Sequence[str], seed: int) -> None:
    """A small ViT, or DeiT with a distillation token, with drawn weights."""
    from importlib import import_module

    import torch
    from safetensors.torch import save_file

    place, _, name = _ARCHITECTURES[kind].rpartition(".")
    torch.manual_seed(seed)
    arguments = {**_VISION, "num_classes": len(classes)}
    module = getattr(import_module(place), name)(**arguments)
    torch.nn.init.normal_(module.pos_embed, std=0.2)
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architecture": _ARCHITECTURES[kind],
        "timm_args": arguments,
        "mean": _MEAN,
        "std": _STD,
        "input_size": [3, 32, 32],
        "interpolation": "bicubic",
        "classes": list(classes),
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    weights = {key: value.contiguous() for key, value in module.state_dict().items()}
    save_file(weights, folder / "model.safetensors")


def _rows(path: Path) -> Rows:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()[1:]
    pairs = (line.split("\t", 1) for line in lines)
    return [(label, text.strip()) for label, text in pairs]


def _read(path: Path) -> Rows:
    with path.open(encoding="utf-8", newline="") as file:
        lines = file.read().splitlines()[1:]
    return [tuple(line.split("\t", 1)) for line in lines]  # type: ignore[misc]


def _write(path: Path, rows: Rows) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None)
        writer.writerow(("label", "text"))
        writer.writerows(rows)
