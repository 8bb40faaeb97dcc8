"""Checks the arguments of a timm model in a file: by name, by type and by size.

timm hands every argument on: to its loaders (`checkpoint_path` opens the file it names), to its
wrappers, to the class. So only what the tables below name is passed, and only as numbers, switches
and names; a dictionary, a path or anything callable never is. They hold the plain arguments of the
classifiers of timm 1.0.31; what the models of `tests/support/architectures_timm.py` take is there.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from transexplain.errors import ModelLoadError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: how often a part is repeated: whole numbers, also in lists
_REPEATS = _words(
    """
    block_config cls_attn_layers depth depth_token_only depths extra_norm_period
    global_block_counts layers local_up_to_layer num_blocks num_blocks_list num_levels
    num_rnn_layers num_vit parallel_depth serial_depths stages transformer_depths
    """
)
#: widths, sides in pixels, heads, indices: whole numbers, also in lists
_COUNTS = _words(
    """
    attn_groups attn_head_dim_reduction attn_mlp_ratio attn_pool_num_heads base_dim base_dims
    base_width block_reduce_first bn_size cardinality ch_div channel_multiplier channels d2_scales
    dim dims down_kernel_size down_pad down_patch_size down_stride downsample_kernel_size
    downsample_padding downsample_ratio drop_block_size embed_dim embed_dims expand_groups
    feature_dim ffn_ratio final_chs first_stride focal_levels focal_windows global_att_blocks
    global_attn_indexes global_pos_size group groups growth_rate growth_rates head_dim
    head_hidden_size head_widths heads hidden_size hidden_sizes img_size in_chans inc_sec
    init_channels
    initial_chs inner_dim inplanes intermediate_size k_r k_sec kernel_size kernel_sizes kernels
    key_dim local_conv_size mask_unit_size merge_size msfa_indices msfa_output_resolution n_div
    neck_chans num_features num_heads num_heads_inner num_heads_outer num_init_features
    num_kv_heads num_reg_tokens output_stride partial_dim patch_kernel patch_padding patch_size
    patch_sizes patch_stride pool_size pooling_kernel_size pooling_scale pos_embed_grid_size
    position_embedding_size pretrained_window_sizes q_pool q_stride qk_dim ref_feat_shape
    reg_tokens rel_pos_dim repmixer_kernel_size rope_mrope_section sr_ratios state_dim stem_chs
    stem_hidden_dim stem_kernel_size stem_size stem_stride stem_width stride strides
    swiglu_align_to width_list widths window_ratio window_size window_sizes window_spec wss
    """
)
#: fractions, factors and constants: numbers, also in lists
_RATES = _words(
    """
    attn_drop_rate attn_pool_mlp_ratio attn_ratio bottle_ratio bottleneck_width_ratio cls_ratio
    conv_ratio deepen_factor depth_mult dim_mul downsample_expand_ratios drop drop_block_rate
    drop_path_rate drop_rate dropout eta expand_ratio expansion_ratio head_init_scale head_mul
    img_scale init_values layer_scale layer_scale_init_value layer_scale_init_values
    layerscale_value locality_strength ls_init_value mbconv_expand_ratio mix_block_ratio mlp_ratio
    mlp_ratio_token_only mlp_ratios norm_eps patch_drop_rate pos_drop_rate proj_drop_rate
    res_scale_init_values rope_grid_offset rope_jitter_coords rope_rescale_coords
    rope_shift_coords rope_temperature rope_theta scale se_ratio ssd_expand stem_expand_ratio
    transition_compression_ratio widen_factor width width_factor width_mult
    """
)
#: true or false, also in lists
_SWITCHES = _words(
    """
    aa_stem_only abs_win_pos_embed always_partition attn attn_mlp attn_only_layer_scale avg_down b
    basic bias bidirectional channel_attention channel_attn_v2 class_token conv_bias conv_init
    conv_mlp cpe_act crop_scale distillation distilled downsample_block downsamples dynamic_img_pad
    dynamic_img_size extra_norm_stage fc_norm ffn final_norm fix_init fix_stem fused_conv
    fused_downsample head_bias head_norm head_norm_first input_3x3 is_downsample_block legacy
    linear lkc_use_act mask_unit_attn mlp_bias multi_conv named_blocks nlhb no_embed_class
    normalize_modulator outlook_attention patch_norm pool_include_prefix pre_norm preact proj_bias
    qk_norm qkv_bias qkv_fused reparam replace_stem_pool rope_rotate_half scale_attn_inner
    scale_attn_norm scale_mlp scale_mlp_norm se_downsamples se_from_exp sep_pos_embed
    sequential_attn shared_rel_pos shortcut_root small small_kernels standardize stem_bias
    stem_mid_norm stem_norm stem_use_scale_branch strict_img_size swiglu_mlp tokens_norm
    transformer_drop_path use_abs_pos use_abs_pos_emb use_clipped_linears use_conv use_expand_proj
    use_fc_norm use_grn use_lab use_layer_scale use_mlp_head use_msfa use_overlap_down use_pos_emb
    use_pos_embed use_post_norm use_post_norm_in_modulation use_post_transformer_norm
    use_pre_transformer_norm use_rel_pos use_rel_pos_bias use_rope use_rot_pos_emb
    use_shared_rel_pos_bias v2 vit_stem with_fc zero_init_last
    """
)
#: one of a few words that timm compares with its own, also in lists
_WORDS = _words(
    """
    attn_stage attn_type attn_types attn_upsample down_op down_ops downsample encoder_pool
    feature_location global_pool head head_fn local_mbconv_norm pad_type pconv_fw_type pool_type
    pos_embed post_layers rel_pos_type rope_grid_indexing rope_type spatial_conv stem_type
    token_mixers types union version weight_init
    """
)
_ACTIVATIONS = _words(
    """
    celu elu gelu gelutanh hardmish hardsigmoid hardswish identity leakyrelu mish prelu quickgelu
    relu relu6 selu sigmoid silu swish tanh
    """
)
_NORMS = _words(
    """
    batchnorm batchnorm1d batchnorm2d evonormb0 evonormb1 evonormb2 evonorms0 evonorms0a evonorms1
    evonorms1a evonorms2 evonorms2a frn frntlu frozenbatchnorm2d groupnorm groupnorm1 layernorm
    layernorm2d layernorm2dfp32 layernormfp32 rmsnorm rmsnorm2d rmsnorm2dfp32 rmsnormfp32
    simplenorm simplenorm2d simplenorm2dfp32 simplenormfp32
    """
)
#: layers that timm looks up by name: the names that are known here, without underscores
_LAYERS = {
    **dict.fromkeys(("act_layer", "attn_act_layer", "dw_act_layer", "fc_act_layer"), _ACTIVATIONS),
    **dict.fromkeys(("norm_layer", "norm_layer_cl", "embed_norm_layer"), _NORMS),
    "attn_layer": frozenset({"attn", "diff"}),
    "aa_layer": frozenset({"avg", "blur", "blurpc", "max"}),
    "se_layer": frozenset({"se", "ese", "eca", "ecam", "ceca"}),
}
#: arguments of timm's own machinery, and what they would do
_REFUSED = {
    "checkpoint_path": "opens the file that it names",
    "cache_dir": "names a directory to read weights from",
    "features_only": "makes a model without a classifier",
    "feature_cfg": "makes a model without a classifier",
    "feature_cls": "makes a model without a classifier",
    "out_indices": "makes a model without a classifier",
    "kwargs_filter": "takes arguments away",
    "pruned": "reads a description of another model",
    **dict.fromkeys(("scriptable", "exportable", "no_jit", "jit"), "changes every layer's code"),
    **dict.fromkeys(("device", "dtype"), "is set where the model is loaded"),
}
_PRETRAINED = "fetches or opens weights elsewhere"

_MOST_REPEATS = 1 << 10
_MOST_CLASSES = 1 << 20
_LARGEST_COUNT = 1 << 16
_LARGEST_SIDE = 1 << 12  #: pixels
_LARGEST_RATE = 1e6
_LONGEST = 256  #: numbers or words in one argument
_WORD = re.compile(r"\w{0,32}", re.ASCII)
_REMEDY = "build the model yourself with timm and use wrap"


def checked_arguments(given: Any, where: str) -> dict[str, Any]:
    """The arguments of a timm model in a file, as they are.

    Raises ModelLoadError that names the first one which may not stand there, and why.
    """
    if not isinstance(given, Mapping):
        raise ModelLoadError(f"{where}: the model's arguments are no object")
    for name, value in given.items():
        reason = _PRETRAINED if name.startswith(("pretrained", "hf_hub")) else _REFUSED.get(name)
        if reason is None:
            reason = _wrong(name, value)
        if reason is not None:
            shown = "" if isinstance(value, Mapping) else f" ({str(value)[:60]!r})"
            raise ModelLoadError(
                f"{where}: the argument {name}{shown} {reason}; remove it, or {_REMEDY}"
            )
    return dict(given)


def plain_name(name: str) -> bool:
    """Whether `name` can be one of timm's registered names: no source, path or hub id."""
    return re.fullmatch(r"\w+(\.\w+)?", name, re.ASCII) is not None


def _wrong(name: str, value: Any) -> str | None:
    """The reason why an argument may not be passed; None: it may."""
    if name not in _KNOWN:
        return "is none of the arguments that are taken from a file"
    members = _flat(value)
    if members is None:
        return f"holds an object, or more than {_LONGEST} values"
    values = [one for one in members if one is not None]
    if name == "num_classes" or name in _REPEATS | _COUNTS:
        return _wrong_count(name, values)
    if name in _RATES:
        right = all(_is_number(one) and abs(one) <= _LARGEST_RATE for one in values)
        return None if right else f"is no number from {-_LARGEST_RATE:,.0f} to {_LARGEST_RATE:,.0f}"
    if name in _SWITCHES:
        return None if all(isinstance(one, bool) for one in values) else "is no true or false"
    if name in _WORDS:
        right = all(_is_number(one) or _is_word(one) for one in values)
        return None if right else "is no word of timm's"
    return _wrong_layer(name, values)


def _wrong_count(name: str, values: list[Any]) -> str | None:
    most = _MOST_REPEATS if name in _REPEATS else _LARGEST_COUNT
    most = {"num_classes": _MOST_CLASSES, "img_size": _LARGEST_SIDE}.get(name, most)
    whole = all(_is_number(one) and int(one) == one for one in values)
    right = whole and all(abs(one) <= most for one in values)
    return None if right else f"is no whole number up to {most:,}"


def _wrong_layer(name: str, values: list[Any]) -> str | None:
    known = _LAYERS[name]
    right = all(isinstance(one, str) and one.replace("_", "").lower() in known for one in values)
    return None if right else f"is none of {', '.join(sorted(known))}"


def _flat(value: Any) -> list[Any] | None:
    """The members of a list of lists; None where there are too many, or an object."""
    found: list[Any] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list | tuple):
            waiting += one
        else:
            found.append(one)
        if isinstance(one, Mapping) or len(found) + len(waiting) > _LONGEST:
            return None
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


_KNOWN = frozenset({"num_classes"}) | _REPEATS | _COUNTS | _RATES | _SWITCHES | _WORDS | {*_LAYERS}
