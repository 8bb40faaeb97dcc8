"""Tiny image classifiers of timm: vision transformers and mixers."""

from functools import partial
from typing import Any

from architectures_record import Architecture, Settings, from_timm

_VIT: dict[str, Any] = {"img_size": 32, "embed_dim": 16, "depth": 2, "num_heads": 2}
_VIT_14 = {**_VIT, "img_size": 28}
_SWIN: dict[str, Any] = {
    "img_size": 32,
    "depths": (2, 2),
    "embed_dim": 8,
    "num_heads": (2, 2),
    "window_size": 4,
}
_PYRAMID: dict[str, Any] = {
    "depths": (1, 1, 1, 1),
    "embed_dims": (8, 8, 16, 16),
    "num_heads": (1, 1, 2, 2),
}
_PIT: dict[str, Any] = {
    "img_size": 64,
    "base_dims": (8, 8, 8),
    "depth": (1, 1, 1),
    "heads": (1, 2, 2),
}
_COAT: dict[str, Any] = {
    "img_size": 32,
    "serial_depths": (1, 1, 1, 1),
    "num_heads": 2,
    "crpe_window": {3: 1, 5: 1},
}
_MIXER: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "num_blocks": 2}


def _mixer_block(name: str) -> dict[str, Any]:
    import timm.models.mlp_mixer as family

    mlp = {"ResBlock": family.Mlp, "SpatialGatingBlock": family.GatedMlp}[name]
    return {**_MIXER, "block_layer": getattr(family, name), "mlp_layer": mlp, "mlp_ratio": 4}


def _mvit(**more: Any) -> dict[str, Any]:
    from timm.models.mvitv2 import MultiScaleVitCfg

    config = MultiScaleVitCfg(depths=(1, 1, 1, 1), embed_dim=8, **more)
    return {"cfg": config, "img_size": 64}


def _vitamin() -> dict[str, Any]:
    from timm.models.vitamin import VitCfg, VitConvCfg

    convolutions = VitConvCfg(norm_layer="layernorm2d", norm_eps=1e-6)
    stages = VitCfg(
        embed_dim=(8, 8, 16), depths=(1, 1, 1), stem_width=8, conv_cfg=convolutions, head_type="1d"
    )
    return {**_VIT, "embed_cfg": stages}


def timm_table(models: dict[str, tuple[str, int, Settings]]) -> list[Architecture]:
    """One record per row: name -> (timm's name or module:Class, side of the picture, settings)."""
    return [
        Architecture(
            name=f"timm {name}",
            source="timm",
            kind="image classifiers",
            make=from_timm(model, settings),
            picture=(3, side, side),
            casts=name == "EfficientViT (MIT)",
        )
        for name, (model, side, settings) in models.items()
    ]


#: name -> (timm's name or module:Class, side of the picture in pixels, settings)
_MODELS: dict[str, tuple[str, int, Settings]] = {
    "BEiT": ("beit_base_patch16_224", 32, _VIT),
    "BEiT v2": ("beitv2_base_patch16_224", 32, _VIT),
    "CaiT": ("cait_xxs24_224", 32, _VIT),
    "CoaT": ("coat_tiny", 32, {**_COAT, "embed_dims": (8, 8, 8, 8), "parallel_depth": 1}),
    "CoaT-Lite": ("coat_lite_tiny", 32, {**_COAT, "embed_dims": (8, 8, 16, 16)}),
    "ConViT": (
        "convit_tiny",
        32,
        {"img_size": 32, "embed_dim": 16, "depth": 3, "num_heads": 2, "local_up_to_layer": 2},
    ),
    "CrossViT": (
        "crossvit_9_240",
        32,
        {
            "img_size": 32,
            "img_scale": (1.0, 1.0),
            "patch_size": (8, 16),
            "embed_dim": (16, 24),
            "depth": ((1, 1, 0),),
            "num_heads": (2, 2),
            "mlp_ratio": (2, 2, 1),
        },
    ),
    "DeiT": ("deit_tiny_patch16_224", 32, _VIT),
    "DeiT distilled": ("deit_tiny_distilled_patch16_224", 32, _VIT),
    "DeiT-3": ("deit3_small_patch16_224", 32, _VIT),
    "DINOv2 with registers": ("vit_small_patch14_reg4_dinov2", 28, _VIT_14),
    "DINOv3": ("vit_small_patch16_dinov3", 32, _VIT),
    "EVA": ("eva_giant_patch14_224", 28, _VIT_14),
    "EVA-02": ("eva02_tiny_patch14_224", 28, _VIT_14),
    "EVA-02 CLIP": ("eva02_base_patch16_clip_224", 32, _VIT),
    "FlexiViT": ("flexivit_small", 32, _VIT),
    "gMLP": ("mlp_mixer:MlpMixer", 32, partial(_mixer_block, "SpatialGatingBlock")),
    "Hiera": (
        "hiera_tiny_224",
        64,
        {"img_size": 64, "embed_dim": 8, "num_heads": 1, "stages": (1, 1, 1, 1)},
    ),
    "Mixer": ("mlp_mixer:MlpMixer", 32, _MIXER),
    "MViT V2": ("mvitv2:MultiScaleVit", 64, _mvit),
    "MViT V2 with class token": ("mvitv2:MultiScaleVit", 64, partial(_mvit, use_cls_token=True)),
    "NaFlexViT": ("naflexvit_base_patch16_gap", 32, {"embed_dim": 16, "depth": 2, "num_heads": 2}),
    "NesT": (
        "nest:Nest",
        64,
        {"img_size": 64, "embed_dims": (8, 8, 16), "num_heads": (1, 2, 2), "depths": (1, 1, 1)},
    ),
    "Perception Encoder": ("vit_pe_core_tiny_patch16_384", 32, _VIT),
    "PiT": ("pit_ti_224", 64, _PIT),
    "PiT distilled": ("pit_ti_distilled_224", 64, _PIT),
    "PVT v2": ("pvt_v2_b0", 32, _PYRAMID),
    "PVT v2 linear": ("pvt_v2_b2_li", 32, _PYRAMID),
    "ResMLP": ("mlp_mixer:MlpMixer", 32, partial(_mixer_block, "ResBlock")),
    "SAM ViT": (
        "samvit_base_patch16",
        32,
        {**_VIT, "global_attn_indexes": (1,), "window_size": 2, "neck_chans": 16},
    ),
    "Sequencer2D": (
        "sequencer2d_s",
        28,
        {
            "img_size": 28,
            "layers": (1, 1, 1, 1),
            "embed_dims": (8, 8, 8, 8),
            "hidden_sizes": (4, 4, 4, 4),
        },
    ),
    "SigLIP ViT": ("vit_base_patch16_siglip_224", 32, _VIT),
    "Swin": ("swin_tiny_patch4_window7_224", 32, _SWIN),
    "Swin V2": ("swinv2_tiny_window8_256", 32, _SWIN),
    "Swin V2 CR": ("swinv2_cr_tiny_224", 32, _SWIN),
    "TNT": (
        "tnt_s_legacy_patch16_224",
        32,
        {
            "img_size": 32,
            "embed_dim": 16,
            "inner_dim": 8,
            "depth": 2,
            "num_heads_inner": 2,
            "num_heads_outer": 2,
        },
    ),
    "Twins-PCPVT": ("twins_pcpvt_small", 64, {**_PYRAMID, "img_size": 64}),
    "Twins-SVT": (
        "twins_svt_small",
        64,
        {**_PYRAMID, "img_size": 64, "depths": (1, 1, 1, 2), "wss": (2, 2, 2, 2)},
    ),
    "ViT": ("vit_tiny_patch16_224", 32, _VIT),
    "ViT (parallel blocks)": ("vit_small_patch16_18x2_224", 32, _VIT),
    "ViT (relative positions)": ("vit_relpos_small_patch16_224", 32, _VIT),
    "ViT (rotary positions)": ("vit_small_patch16_rope_224", 32, _VIT),
    "ViT (shared relative positions)": ("vit_srelpos_small_patch16_224", 32, _VIT),
    "ViT CLIP": ("vit_base_patch16_clip_224", 32, _VIT),
    "ViT hybrid": ("vit_tiny_r_s16_p8_224", 32, _VIT),
    "ViTamin": ("vitamin_small_224", 32, _vitamin),
    "VOLO": (
        "volo:VOLO",
        32,
        {
            "img_size": 32,
            "layers": (1, 1, 1, 1),
            "embed_dims": (8, 16, 16, 16),
            "num_heads": (1, 2, 2, 2),
            "stem_hidden_dim": 8,
        },
    ),
    "XCiT": ("xcit_nano_12_p16_224", 32, _VIT),
}

TIMM = timm_table(_MODELS)
