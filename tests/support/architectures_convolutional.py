"""Tiny image classifiers of transformers that are built of convolutions or pooling."""

from typing import Any

from architectures_image import image_record

_CONVNEXT: dict[str, Any] = {
    "hidden_sizes": [8, 16],
    "depths": [1, 1],
    "num_stages": 2,
    "patch_size": 4,
    "num_labels": 3,
    "image_size": 32,
}
_RESNET: dict[str, Any] = {
    "embedding_size": 8,
    "hidden_sizes": [8, 16],
    "depths": [1, 1],
    "num_labels": 3,
}

#: name -> (stem of the class names, side of the picture, settings)
_MODELS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "BiT": ("Bit", 32, {**_RESNET, "num_groups": 2}),
    "ConvNeXt": ("ConvNext", 32, _CONVNEXT),
    "ConvNeXt V2": ("ConvNextV2", 32, _CONVNEXT),
    "EfficientNet": (
        "EfficientNet",
        32,
        {
            "image_size": 32,
            "width_coefficient": 0.25,
            "depth_coefficient": 0.3,
            "hidden_dim": 320,
            "in_channels": [8, 8],
            "out_channels": [8, 8],
            "kernel_sizes": [3, 3],
            "strides": [1, 2],
            "num_block_repeats": [1, 1],
            "expand_ratios": [1, 2],
            "num_labels": 3,
        },
    ),
    "FocalNet": (
        "FocalNet",
        32,
        {
            "embed_dim": 8,
            "depths": [1, 1],
            "hidden_sizes": [8, 16],
            "focal_levels": [1, 1],
            "focal_windows": [3, 3],
            "image_size": 32,
            "num_labels": 3,
        },
    ),
    "HGNet V2": (
        "HGNetV2",
        32,
        {
            **_RESNET,
            "stem_channels": [3, 4, 8],
            "stage_in_channels": [8, 8],
            "stage_mid_channels": [4, 4],
            "stage_out_channels": [8, 16],
            "stage_num_blocks": [1, 1],
            "stage_downsample": [False, True],
            "stage_light_block": [False, True],
            "stage_kernel_size": [3, 3],
            "stage_numb_of_layers": [2, 2],
        },
    ),
    "MobileNet V1": ("MobileNetV1", 32, {"depth_multiplier": 0.25, "num_labels": 3}),
    "MobileNet V2": ("MobileNetV2", 32, {"depth_multiplier": 0.25, "num_labels": 3}),
    "MobileViT": (
        "MobileViT",
        32,
        {
            "image_size": 32,
            "hidden_sizes": [16, 20, 24],
            "neck_hidden_sizes": [8, 8, 12, 16, 16, 16, 32],
            "num_attention_heads": 2,
            "num_labels": 3,
        },
    ),
    "MobileViTV2": (
        "MobileViTV2",
        64,
        {"width_multiplier": 0.125, "n_attn_blocks": [1, 1, 1], "num_labels": 3},
    ),
    "PoolFormer": (
        "PoolFormer",
        32,
        {
            "depths": [1, 1],
            "hidden_sizes": [8, 16],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "padding": [2, 1],
            "num_encoder_blocks": 2,
            "mlp_ratio": 2.0,
            "num_labels": 3,
        },
    ),
    "RegNet": ("RegNet", 32, {**_RESNET, "groups_width": 4}),
    "ResNet": ("ResNet", 32, {**_RESNET, "layer_type": "bottleneck"}),
    "SwiftFormer": (
        "SwiftFormer",
        32,
        {"depths": [1, 1, 1, 1], "embed_dims": [8, 8, 16, 16], "mlp_ratio": 2, "num_labels": 3},
    ),
    "TextNet": (
        "TextNet",
        32,
        {
            "image_size": [32, 32],
            "hidden_sizes": [4, 4, 8, 8, 8],
            "stem_out_channels": 4,
            "conv_layer_kernel_sizes": [[[3, 3]], [[3, 3]], [[3, 1]], [[1, 3]]],
            "conv_layer_strides": [[1], [2], [2], [2]],
            "num_labels": 3,
        },
    ),
}

CONVOLUTIONAL = [image_record(name, *row) for name, row in _MODELS.items()]
