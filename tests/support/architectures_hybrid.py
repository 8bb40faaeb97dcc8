"""Tiny image classifiers of timm that mix convolutions or pooling with attention."""

from functools import partial
from typing import Any

from architectures_record import Settings
from architectures_timm import timm_table

_STAGES: dict[str, Any] = {"depths": (1, 1, 1, 1), "dims": (8, 8, 16, 16)}
_PYRAMID: dict[str, Any] = {
    "depths": (1, 1, 1, 1),
    "embed_dims": (8, 8, 16, 16),
    "num_heads": (1, 1, 2, 2),
}
_LEVIT: dict[str, Any] = {
    "img_size": 64,
    "embed_dim": (8, 8, 16),
    "num_heads": (1, 2, 2),
    "depth": (1, 1, 1),
    "key_dim": 4,
}
_MAXXVIT: dict[str, Any] = {
    "img_size": 64,
    "depths": (1, 1, 1, 1),
    "embed_dim": (32, 32, 32, 32),
    "stem_width": 8,
}


def _metaformer(mixer: str, width: int) -> dict[str, Any]:
    import timm.models.metaformer as family

    maps, tokens = family.LayerNorm2dNoBias, family.LayerNormNoBias
    last = tokens if mixer == "Attention" else maps
    return {
        "depths": (1, 1, 1, 1),
        "dims": (8, 8, width, width),
        "token_mixers": (family.Pooling, family.Pooling, *[getattr(family, mixer)] * 2),
        "norm_layers": [maps, maps, last, last],
    }


#: name -> (timm's name or module:Class, side of the picture in pixels, settings)
_MODELS: dict[str, tuple[str, int, Settings]] = {
    "CAFormer": ("metaformer:MetaFormer", 64, partial(_metaformer, "Attention", 32)),
    "CoAtNet": ("coatnet_0_rw_224", 64, _MAXXVIT),
    "CoAtNet (relative MLP)": ("coatnet_rmlp_0_rw_224", 64, _MAXXVIT),
    "ConvFormer": ("metaformer:MetaFormer", 64, partial(_metaformer, "SepConv", 16)),
    "ConvMixer": ("convmixer:ConvMixer", 28, {"dim": 16, "depth": 2, "kernel_size": 3}),
    "ConvNeXt": ("convnext_tiny", 32, _STAGES),
    "ConvNeXt V2": ("convnextv2_tiny", 32, _STAGES),
    "DaViT": ("davit_tiny", 64, {**_PYRAMID, "window_size": 2}),
    "EdgeNeXt": ("edgenext_xx_small", 32, {"depths": (1, 1, 2, 2), "dims": (8, 16, 16, 24)}),
    "EfficientFormer": (
        "efficientformer_l1",
        224,
        {"depths": (1, 1, 1, 2), "embed_dims": (8, 8, 16, 16), "num_vit": 1},
    ),
    "EfficientFormer V2": (
        "efficientformerv2_s0",
        64,
        {"img_size": 64, "depths": (1, 1, 1, 2), "embed_dims": (8, 8, 16, 16), "num_vit": 1},
    ),
    "EfficientViT (MIT)": (
        "efficientvit_b0",
        32,
        {
            "widths": (8, 8, 16, 16, 16),
            "depths": (1, 1, 1, 1, 1),
            "head_dim": 8,
            "head_widths": (16, 16),
        },
    ),
    "EfficientViT (MSRA)": (
        "efficientvit_m0",
        64,
        {
            "img_size": 64,
            "embed_dim": (8, 16, 16),
            "key_dim": (4, 4, 4),
            "depth": (1, 1, 1),
            "num_heads": (2, 2, 2),
        },
    ),
    "FastViT": ("fastvit_sa12", 32, {"layers": (1, 1, 1, 1), "embed_dims": (8, 8, 16, 32)}),
    "FocalNet": ("focalnet:FocalNet", 32, {"depths": (1, 1, 1, 1), "embed_dim": 8}),
    "GC ViT": (
        "gcvit:GlobalContextVit",
        64,
        {
            "img_size": 64,
            "depths": (1, 1, 1, 1),
            "embed_dim": 8,
            "num_heads": (1, 1, 2, 2),
            "window_ratio": (32, 32, 16, 32),
        },
    ),
    "InceptionNeXt": ("inception_next_tiny", 32, {**_STAGES, "dims": (16, 16, 32, 32)}),
    "LeViT": ("levit_128s", 64, _LEVIT),
    "LeViT (convolutions)": ("levit_conv_128s", 64, _LEVIT),
    "MambaOut": ("mambaout_femto", 32, _STAGES),
    "MaxViT": ("maxvit_tiny_tf_224", 64, _MAXXVIT),
    "MaxxViT": ("maxxvit_rmlp_nano_rw_256", 64, _MAXXVIT),
    "MaxxViT V2": ("maxxvitv2_nano_rw_256", 64, _MAXXVIT),
    "MobileViT": ("mobilevit_xxs", 64, {}),
    "MobileViT V2": ("mobilevitv2_050", 64, {}),
    "PoolFormer": ("metaformer:MetaFormer", 64, partial(_metaformer, "Pooling", 16)),
    "RepViT": ("repvit_m0_9", 32, {"embed_dim": (8, 8, 16, 16), "depth": (1, 1, 1, 1)}),
    "SwiftFormer": ("swiftformer_xs", 32, {"layers": (1, 1, 1, 1), "embed_dims": (8, 8, 16, 16)}),
    "TinyViT": ("tiny_vit_5m_224", 64, {**_PYRAMID, "window_sizes": (2, 2, 2, 2)}),
    "Visformer": (
        "visformer_tiny",
        64,
        {"img_size": 64, "init_channels": 8, "embed_dim": 32, "depth": (1, 1, 1), "num_heads": 2},
    ),
}

HYBRID = timm_table(_MODELS)
