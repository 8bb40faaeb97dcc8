"""Tiny language models with random weights, and tokenizers that split and join as large ones do."""

from functools import cache
from typing import Any

import torch
import transformers
from architectures_record import randomised
from tiny_models import SIZES
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import nn

SENTENCES = [
    "The nurse said that he was late, and the doctor said that she was early.",
    "The capital of France is Paris. The capital of Italy is Rome.",
    "she said he said they said that the film was good",
]


@cache
def byte_pairs(size: int = 330, *, begins: bool = False, ends: bool = False) -> Any:
    """A byte-level tokenizer as GPT-2's; with tokens that begin or end every text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    if begins or ends:
        template = "<s> $A" * begins + "$A" * (not begins) + " </s>" * ends
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        mask_token="<mask>",
        model_input_names=["input_ids", "attention_mask"],
    )


_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def causal(**settings: Any) -> nn.Module:
    """A GPT-2 of two layers and 64 positions in float64."""
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 330, "n_positions": 64}
    config = transformers.GPT2Config(**{**sizes, **_IDS, **settings})
    return _made(transformers.GPT2LMHeadModel, config)


def encoder_decoder() -> nn.Module:
    """A BART of two layers on either side in float64."""
    sides = dict.fromkeys(("encoder_layers", "decoder_layers"), 2)
    sides |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2)
    sides |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 24)
    config = transformers.BartConfig(
        d_model=16, vocab_size=330, max_position_embeddings=64, decoder_start_token_id=2,
        **sides, **_IDS,
    )  # fmt: skip
    return _made(transformers.BartForConditionalGeneration, config)


def masked() -> nn.Module:
    """A BERT with the head it is pretrained with, in float64."""
    config = transformers.BertConfig(
        **SIZES, vocab_size=330, max_position_embeddings=64, pad_token_id=0
    )
    return _made(transformers.BertForMaskedLM, config)


def _made(cls: Any, config: Any) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return randomised(cls(config))
