"""Tiny random models saved the way users save theirs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch import nn

from transexplain.types.items import Item

WORDS = ["a", "film", "nice", "un", "##believ", "##ably", "good", "goods", "[", "]", "x", "e", "-"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}


def picture(seed: int = 0) -> Image.Image:
    """A picture of noise, 24 by 24 pixels."""
    noise = np.random.default_rng(seed).integers(0, 255, (24, 24, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def pixels(image: Image.Image) -> torch.Tensor:
    """(3, 24, 24) normalised by a mean of 0.5, so that black is -1."""
    shown = np.asarray(image.resize((24, 24)), dtype=np.float64)
    return torch.from_numpy(shown.transpose(2, 0, 1) / 127.5 - 1)


def wordpiece(**options: Any) -> "transformers.PreTrainedTokenizerFast":
    """A WordPiece tokenizer of 18 pieces that lower-cases and drops accents, as BERT's."""
    vocabulary = {piece: index for index, piece in enumerate(SPECIAL + WORDS)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.decoder = decoders.WordPiece()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        **{"model_input_names": ["input_ids", "token_type_ids", "attention_mask"], **options},
    )


def byte_level() -> "transformers.PreTrainedTokenizerFast":
    """A byte-level tokenizer without merges, as RoBERTa's: several positions per emoji."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *alphabet]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=False, add_prefix_space=False
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        cls_token="<s>",
        sep_token="</s>",
        bos_token="<s>",
        eos_token="</s>",
        model_input_names=["input_ids", "attention_mask"],
    )


def bert(**config: Any) -> "transformers.BertForSequenceClassification":
    torch.manual_seed(0)
    settings = {"vocab_size": 18, "max_position_embeddings": 20, "num_labels": 3, **SIZES, **config}
    return transformers.BertForSequenceClassification(transformers.BertConfig(**settings)).eval()


def vit(**config: Any) -> "transformers.ViTForImageClassification":
    torch.manual_seed(0)
    settings = {"image_size": 24, "patch_size": 8, "num_labels": 4, **SIZES, **config}
    return transformers.ViTForImageClassification(transformers.ViTConfig(**settings)).eval()


def text_items(*contents: Any) -> list[Item]:
    return [Item(id=f"i{n}", index=n, content=content) for n, content in enumerate(contents)]


class Recorder:
    """Taps that note what happens, in order, and may change the input layer."""

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor] = lambda t: t) -> None:
        self.change = change
        self.events: list[str] = []
        self.tensor: torch.Tensor | None = None

    def input_layer(self, tensor: torch.Tensor) -> torch.Tensor:
        self.events.append("input_layer")
        self.tensor = tensor.detach()
        return self.change(tensor)

    def encoder_begins(self) -> None:
        self.events.append("encoder_begins")


def hooks_of(module: nn.Module) -> int:
    return sum(len(part._forward_pre_hooks) + len(part._forward_hooks) for part in module.modules())
