"""Tiny random models of many architectures, every bias non-zero, in float64."""

from collections.abc import Callable
from typing import Any

import timm
import torch
import transformers as tf
from torch import nn

Make = Callable[[], nn.Module]

_TEXT: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 40,
    "num_labels": 3,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}
_IMAGE: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 24,
    "patch_size": 8,
    "num_labels": 3,
}
_TIMM: dict[str, Any] = {"img_size": 32, "embed_dim": 16, "depth": 2, "num_heads": 2}
_DISENTANGLED = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
_SEQ2SEQ = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "eos_token_id": 3,
}


def _hf(name: str, head: str, config: dict[str, Any], **more: Any) -> Make:
    def make() -> nn.Module:
        settings = getattr(tf, f"{name}Config")(**{**config, **more})
        module: nn.Module = getattr(tf, f"{name}For{head}Classification")(settings)
        return module

    return make


def _timm(name: str, **config: Any) -> Make:
    return lambda: timm.create_model(name, pretrained=False, num_classes=3, **config)


_DISTIL = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
_SWIN = {"embed_dim": 8, "num_heads": (2, 2), "window_size": 4}

_GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "bos_token_id": 2, "eos_token_id": 3}
_XLNET = {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24, "vocab_size": 40}

TEXT: dict[str, Make] = {
    "BERT": _hf("Bert", "Sequence", _TEXT),
    "RoBERTa": _hf("Roberta", "Sequence", _TEXT),
    "XLM-RoBERTa": _hf("XLMRoberta", "Sequence", _TEXT),
    "CamemBERT": _hf("Camembert", "Sequence", _TEXT),
    "ELECTRA": _hf("Electra", "Sequence", _TEXT, embedding_size=16),
    "DistilBERT": _hf("DistilBert", "Sequence", {"vocab_size": 40, "num_labels": 3, **_DISTIL}),
    "MPNet": _hf("MPNet", "Sequence", _TEXT),
    "DeBERTa-v2": _hf("DebertaV2", "Sequence", _TEXT, **_DISENTANGLED),
    "ModernBERT": _hf("ModernBert", "Sequence", _TEXT),
    "RoFormer": _hf("RoFormer", "Sequence", _TEXT),
    "OPT": _hf("OPT", "Sequence", _TEXT, ffn_dim=24, word_embed_proj_dim=16),
    "ALBERT": _hf("Albert", "Sequence", _TEXT, embedding_size=8),
    "GPT-2": _hf("GPT2", "Sequence", {**_TEXT, **_GPT2}),
    "GPT-NeoX": _hf("GPTNeoX", "Sequence", _TEXT),
    "Llama": _hf("Llama", "Sequence", _TEXT, num_key_value_heads=1),
    "Mistral": _hf("Mistral", "Sequence", _TEXT, num_key_value_heads=1),
    "Qwen2": _hf("Qwen2", "Sequence", _TEXT, num_key_value_heads=1),
    "BART": _hf("Bart", "Sequence", {**_TEXT, **_SEQ2SEQ}),
}

IMAGE: dict[str, Make] = {
    "ViT": _hf("ViT", "Image", _IMAGE),
    "DeiT": _hf("DeiT", "Image", _IMAGE),
    "BEiT": _hf("Beit", "Image", _IMAGE),
    "DINOv2": _hf("Dinov2", "Image", _IMAGE),
    "Swin": _hf(
        "Swin", "Image", {**_SWIN, "num_labels": 3}, image_size=32, patch_size=2, depths=(2, 2)
    ),
    "timm ViT": _timm("vit_tiny_patch16_224", **_TIMM),
    "timm DeiT distilled": _timm("deit_tiny_distilled_patch16_224", **_TIMM),
    "timm DeiT-3": _timm("deit3_small_patch16_224", **_TIMM),
    "timm DINOv2 with registers": _timm(
        "vit_small_patch14_reg4_dinov2", **{**_TIMM, "img_size": 28}
    ),
    "timm BEiT": _timm("beit_base_patch16_224", **_TIMM),
    "timm CaiT": _timm("cait_xxs24_224", **_TIMM),
    "timm EVA-02": _timm("eva02_tiny_patch14_224", **{**_TIMM, "img_size": 28}),
    "timm SigLIP ViT": _timm("vit_base_patch16_siglip_224", **_TIMM),
    "timm Swin": _timm("swin_tiny_patch4_window7_224", img_size=32, depths=(2, 2), **_SWIN),
}

#: architecture -> the operator that it is refused for
REFUSED: dict[str, tuple[Make, str]] = {
    "XLNet": (_hf("XLNet", "Sequence", _XLNET), "einsum"),
}


def randomised(module: nn.Module) -> nn.Module:
    """The module in float64 with noise on every parameter, so that no bias is 0."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return module.double().eval()
