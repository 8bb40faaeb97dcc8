"""Tiny image classifiers of transformers: vision transformers and their relatives."""

from typing import Any

from architectures_record import Architecture, from_transformers

_VIT: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 24,
    "patch_size": 8,
    "num_labels": 3,
}
_TWO_TOWERS: dict[str, Any] = {
    "vision_config": _VIT,
    "text_config": {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "vocab_size": 10,
    },
    "num_labels": 3,
}
_SWIN: dict[str, Any] = {
    "embed_dim": 8,
    "num_heads": [2, 2],
    "depths": [2, 2],
    "window_size": 4,
    "image_size": 32,
    "patch_size": 2,
    "num_labels": 3,
}
_PYRAMID: dict[str, Any] = {
    "image_size": 32,
    "num_encoder_blocks": 2,
    "depths": [1, 1],
    "hidden_sizes": [8, 16],
    "patch_sizes": [7, 3],
    "strides": [4, 2],
    "num_attention_heads": [1, 2],
    "num_labels": 3,
}
_PYRAMID_V2 = {**_PYRAMID, "sr_ratios": [2, 1], "mlp_ratios": [2, 2]}
_LEVIT: dict[str, Any] = {
    "image_size": 32,
    "hidden_sizes": [8, 16, 16],
    "num_attention_heads": [1, 2, 2],
    "depths": [1, 1, 1],
    "key_dim": [4, 4, 4],
    "mlp_ratio": [2, 2, 2],
    "attention_ratio": [2, 2, 2],
    "num_labels": 3,
}
_PERCEIVER: dict[str, Any] = {
    "image_size": 16,
    "num_latents": 4,
    "d_latents": 16,
    "num_blocks": 1,
    "num_self_attends_per_block": 2,
    "num_self_attention_heads": 2,
    "num_cross_attention_heads": 1,
    "num_labels": 3,
}
_CVT: dict[str, Any] = {
    "patch_sizes": [7, 3],
    "patch_stride": [4, 2],
    "patch_padding": [2, 1],
    "embed_dim": [8, 16],
    "num_heads": [1, 2],
    "depth": [1, 2],
    "mlp_ratio": [2.0, 2.0],
    "attention_drop_rate": [0.0, 0.0],
    "drop_rate": [0.0, 0.0],
    "drop_path_rate": [0.0, 0.0],
    "qkv_bias": [True, True],
    "cls_token": [False, True],
    "qkv_projection_method": ["dw_bn", "dw_bn"],
    "kernel_qkv": [3, 3],
    "padding_kv": [1, 1],
    "stride_kv": [2, 2],
    "padding_q": [1, 1],
    "stride_q": [1, 1],
    "num_labels": 3,
}

#: name -> (stem of the class names, side of the picture, settings)
_MODELS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "BEiT": ("Beit", 24, {**_VIT, "use_relative_position_bias": True}),
    "CLIP": ("CLIP", 24, _TWO_TOWERS),
    "CvT": ("Cvt", 32, _CVT),
    "Data2VecVision": ("Data2VecVision", 24, {**_VIT, "use_relative_position_bias": True}),
    "DeiT": ("DeiT", 24, _VIT),
    "DINOv2": ("Dinov2", 24, _VIT),
    "DINOv2 with registers": ("Dinov2WithRegisters", 24, {**_VIT, "num_register_tokens": 2}),
    "DINOv2 with SwiGLU": ("Dinov2", 24, {**_VIT, "use_swiglu_ffn": True}),
    "Donut Swin": ("DonutSwin", 32, _SWIN),
    "Hiera": (
        "Hiera",
        32,
        {
            "embed_dim": 8,
            "image_size": [32, 32],
            "patch_size": [3, 3],
            "patch_stride": [4, 4],
            "patch_padding": [1, 1],
            "depths": [1, 1],
            "num_heads": [1, 2],
            "num_query_pool": 1,
            "query_stride": [2, 2],
            "masked_unit_size": [4, 4],
            "masked_unit_attention": [True, False],
            "num_labels": 3,
        },
    ),
    "I-JEPA": ("IJepa", 24, _VIT),
    "LeViT": ("Levit", 32, _LEVIT),
    "MetaCLIP 2": ("MetaClip2", 24, _TWO_TOWERS),
    "PVT": (
        "Pvt",
        32,
        {**_PYRAMID, "patch_sizes": [4, 2], "sequence_reduction_ratios": [2, 1]}
        | {"mlp_ratios": [2, 2]},
    ),
    "PVTv2": ("PvtV2", 32, _PYRAMID_V2),
    "PVTv2 linear": ("PvtV2", 32, {**_PYRAMID_V2, "linear_attention": True}),
    "SegFormer": ("Segformer", 32, _PYRAMID_V2),
    "SigLIP": ("Siglip", 24, _TWO_TOWERS),
    "Swin": ("Swin", 32, _SWIN),
    "Swin V2": ("Swinv2", 32, {**_SWIN, "pretrained_window_sizes": [0, 0]}),
    "ViT": ("ViT", 24, _VIT),
    "ViT-MSN": ("ViTMSN", 24, _VIT),
}

#: name -> (class, stem of its configuration, side of the picture, settings)
_OWN_NAMES: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "DeiT distilled": ("DeiTForImageClassificationWithTeacher", "DeiT", 24, _VIT),
    "LeViT distilled": ("LevitForImageClassificationWithTeacher", "Levit", 32, _LEVIT),
}
_PERCEIVER_WIDTHS = {"Learned": 512, "Fourier": 261, "ConvProcessing": 322}
_OWN_NAMES |= {
    f"Perceiver ({kind})": (
        f"PerceiverForImageClassification{kind}",
        "Perceiver",
        16,
        {**_PERCEIVER, "d_model": width},
    )
    for kind, width in _PERCEIVER_WIDTHS.items()
}


#: of the noise on convolutions, in deep narrow networks whose signal would die out
_GAINS = {"EfficientNet": 6.0, "MobileNet V1": 2.0, "MobileNet V2": 2.0}
_GAINS |= {"MobileViT": 6.0, "MobileViTV2": 4.0}


def image_record(
    name: str, stem: str, side: int, settings: dict[str, Any], model: str | None = None
) -> Architecture:
    """The image classifier of a configuration for pictures of side x side pixels."""
    return Architecture(
        name=name,
        source="transformers",
        kind="image classifiers",
        make=from_transformers(stem, "Image", settings, model),
        picture=(3, side, side),
        gain=_GAINS.get(name, 1.0),
    )


IMAGE = [image_record(name, *row) for name, row in _MODELS.items()]
IMAGE += [image_record(name, *row, model) for name, (model, *row) in _OWN_NAMES.items()]
