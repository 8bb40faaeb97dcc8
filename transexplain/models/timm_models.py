"""Loads image classifiers of timm: by name with a checkpoint, or from a directory."""

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from transexplain.errors import ModelLoadError
from transexplain.files.local_copies import local_file
from transexplain.files.paths import local_path
from transexplain.files.remote_files import check_url, is_url
from transexplain.models.assemble import Origin, assemble_image, unique_names
from transexplain.models.calling import place_of, torch_dtype
from transexplain.models.configs import Budget, read_config, size_of
from transexplain.models.hub import (
    check_header,
    digested_files,
    digests_of_files,
    digests_of_folder,
    fetch,
    fill,
    read_weights,
    weight_files,
)
from transexplain.models.loaded_model import LoadedModel

if TYPE_CHECKING:
    from transexplain.models.image_encoder import Transform


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
    """Return whether `name` can be one of timm's registered names: no source, path or hub id."""
    return re.fullmatch(r"\w+(\.\w+)?", name, re.ASCII) is not None


def _wrong(name: str, value: Any) -> str | None:
    """The reason why an argument may not be passed; None: it may."""
    if name not in _KNOWN:
        return "is none of the arguments that are taken from a file"
    members = _flat(value)
    if members is None:
        return f"holds an object, or more than {_LONGEST} values"
    values = [member for member in members if member is not None]
    if name == "num_classes" or name in _REPEATS | _COUNTS:
        most = _MOST_REPEATS if name in _REPEATS else _LARGEST_COUNT
        most = {"num_classes": _MOST_CLASSES, "img_size": _LARGEST_SIDE}.get(name, most)
        whole = all(_is_number(value) and int(value) == value for value in values)
        right = whole and all(abs(value) <= most for value in values)
        return None if right else f"is no whole number up to {most:,}"
    if name in _RATES:
        right = all(_is_number(value) and abs(value) <= _LARGEST_RATE for value in values)
        return None if right else f"is no number from {-_LARGEST_RATE:,.0f} to {_LARGEST_RATE:,.0f}"
    if name in _SWITCHES:
        return None if all(isinstance(value, bool) for value in values) else "is no true or false"
    if name in _WORDS:
        right = all(_is_number(value) or _is_argument_word(value) for value in values)
        return None if right else "is no word of timm's"
    known = _LAYERS[name]
    right = all(
        isinstance(value, str) and value.replace("_", "").lower() in known for value in values
    )
    return None if right else f"is none of {', '.join(sorted(known))}"


def _flat(value: Any) -> list[Any] | None:
    """The members of a list of lists; None where there are too many, or an object."""
    leaves: list[Any] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list | tuple):
            waiting += one
        else:
            leaves.append(one)
        if isinstance(one, Mapping) or len(leaves) + len(waiting) > _LONGEST:
            return None
    return leaves


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_argument_word(value: Any) -> bool:
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


_KNOWN = frozenset({"num_classes"}) | _REPEATS | _COUNTS | _RATES | _SWITCHES | _WORDS | {*_LAYERS}


PREFIX = "timm:"
_DEFAULT_CLASS = "timm.models.vision_transformer.VisionTransformer"
_SIDE = 4096  #: pixels
#: what timm raises for arguments that do not fit its model
_BUILD_ERRORS = (
    TypeError, ValueError, AssertionError, RuntimeError, LookupError, AttributeError,
    ArithmeticError, MemoryError, ImportError, OSError,
)  # fmt: skip


def _is_shape(value: Any) -> bool:
    sides = value if isinstance(value, list | tuple) else ()
    whole = [side for side in sides if type(side) is int and 0 < side <= _SIDE]
    return len(whole) == len(sides) == 3


def _is_channels(value: Any) -> bool:
    given = value if isinstance(value, list | tuple) else ()
    return 1 <= len(given) <= 3 and all(type(value) in (int, float) for value in given)


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and value.isidentifier()


#: what of timm's data configuration is taken from a file, and what it has to be
_DATA_KEYS: dict[str, Callable[[Any], bool]] = {
    "input_size": _is_shape,
    "interpolation": _is_word,
    "mean": _is_channels,
    "std": _is_channels,
    "crop_pct": lambda value: type(value) in (int, float) and 0.1 <= value <= 10,
    "crop_mode": _is_word,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How to build one timm model and what its pictures look like."""

    architecture: str  #: registered name, or class path under timm.models
    args: dict[str, Any]
    data: dict[str, Any] = field(default_factory=dict)  #: timm's data config
    classes: Sequence[str] | None = None


def load_named(source: str, *, dtype: Any = None, device: str | None = None) -> LoadedModel:
    """`timm:NAME?checkpoint=FILE.safetensors`; without a checkpoint, timm's weights on the hub."""
    number = torch_dtype(str(dtype or "float32").removeprefix("torch."))
    place = _single(place_of(str(device or "cpu")), source)
    name, checkpoint = named_checkpoint(source)
    if checkpoint is None:
        remedy = f"name a file here: {PREFIX}{name}?checkpoint=FILE.safetensors"
        folder, _ = fetch(hub_name(name), remedy=remedy)
        return load_folder(
            folder,
            read_config(folder),
            source=f"{PREFIX}{name}",
            dtype=number,
            device=place,
        )
    weights = read_weights(checked_checkpoint(checkpoint))
    recipe = Recipe(architecture=name, args=head_size(name, weights))
    digest, digested = digests_of_files({f"{name}/{checkpoint.name}": checkpoint})
    origin = Origin(source=source, digest=digest, device=str(place), files=digested)
    return _load(recipe, weights, str(checkpoint), origin=origin, dtype=number, device=place)


def named_files(source: str) -> dict[str, Path]:
    """The files of a `timm:` source that a digest covers; see `load.present_files`."""
    name, checkpoint = named_checkpoint(source)
    if checkpoint is None:
        return digested_files(fetch(hub_name(name), remedy="give a checkpoint file")[0])
    return {f"{name}/{checkpoint.name}": checkpoint} if checkpoint.is_file() else {}


def load_folder(
    folder: Path,
    config: dict[str, Any],
    *,
    source: str,
    dtype: torch.dtype,
    device: torch.device | None,
) -> LoadedModel:
    """A directory whose config.json holds `timm_args` (or timm's own hub configuration)."""
    device = _single(device, source)
    files = weight_files(folder)
    recipe = recipe_of(folder, config)
    digest, digested = digests_of_folder(folder)
    origin = Origin(source=source, digest=digest, device=str(device), files=digested)
    return _load(
        recipe, read_weights(files), str(folder), origin=origin, dtype=dtype, device=device
    )


def _single(device: torch.device | None, source: str) -> torch.device:
    if device is None:
        raise ModelLoadError(
            f"{source} is a timm model, which lies on one device; give device='cuda:0' or 'cpu'"
        )
    return device


def is_timm_config(config: dict[str, Any]) -> bool:
    """Return whether a config.json is for `load_folder` of this module."""
    return "timm_args" in config or ("architecture" in config and "pretrained_cfg" in config)


def _load(
    recipe: Recipe,
    weights: dict[str, torch.Tensor],
    where: str,
    *,
    origin: Origin,
    dtype: torch.dtype,
    device: torch.device,
) -> LoadedModel:
    module = built(recipe, weights, where)
    fill(module, weights, where)
    module = module.to(device=device, dtype=dtype).eval()
    try:
        data = data_config(module, recipe.data)
        transform = eval_transform(data)
    except _BUILD_ERRORS as error:
        raise ModelLoadError(f"{where}: timm makes no pictures of its data: {error}") from error
    return assemble_image(
        module,
        transform=transform,
        shape=data["input_size"],
        classes=_class_names(module, recipe, where),
        origin=origin,
    )


def data_config(module: nn.Module, given: dict[str, Any]) -> dict[str, Any]:
    """timm's data configuration of `module`, with `given` before the model's own."""
    import timm.data

    built = getattr(getattr(module, "patch_embed", None), "img_size", None)
    if "input_size" not in given and isinstance(built, tuple) and len(built) == 2:
        given = {**given, "input_size": (3, *built)}  # built for another size than its weights
    resolved: dict[str, Any] = dict(timm.data.resolve_data_config(given, model=module))
    resolved["input_size"] = tuple(int(side) for side in resolved["input_size"])
    return resolved


def eval_transform(data: dict[str, Any]) -> "Transform":
    """timm's evaluation transform: resize, crop, scale and normalise one picture."""
    import timm.data

    transform: Transform = timm.data.create_transform(**data, is_training=False)
    return transform


def named_checkpoint(source: str) -> tuple[str, Path | None]:
    """The name and the checkpoint of a `timm:` source; raises ModelLoadError."""
    import timm

    name, mark, query = source.removeprefix(PREFIX).partition("?")
    if ":" in name or "/" in name or not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ModelLoadError(f"timm {timm.__version__} has no model {name!r}{hint}")
    key, _, value = query.partition("=")
    if mark and (key != "checkpoint" or not value):
        raise ModelLoadError(
            f"cannot read {source!r}; the form is {PREFIX}NAME?checkpoint=FILE.safetensors"
        )
    if is_url(value):
        check_url(value)
        return name, local_file(value)
    return name, local_path(value) if value else None


def checked_checkpoint(path: Path) -> list[Path]:
    """`path` when it is a whole safetensors file; ModelLoadError otherwise."""
    if not path.is_file():
        raise ModelLoadError(f"the checkpoint {path} is not there")
    if path.suffix != ".safetensors":
        raise ModelLoadError(
            f"the checkpoint {path} is no .safetensors file; other formats can run code when read: "
            "convert it with safetensors.torch.save_file where you trust it"
        )
    check_header(path)
    return [path]


def hub_name(name: str) -> str:
    """The hub's repository of timm's weights of this name."""
    return f"timm/{_with_tag(name)}"


def _with_tag(name: str) -> str:
    import timm

    if "." in name:
        return name
    config = timm.get_pretrained_cfg(name, allow_unregistered=True)
    tag = getattr(config, "tag", "")
    return f"{name}.{tag}" if tag else name


def head_size(name: str, weights: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The number of classes that the checkpoint's head has."""
    import timm

    config = timm.get_pretrained_cfg(name, allow_unregistered=True)
    heads = getattr(config, "classifier", None) or ()
    for head in (heads,) if isinstance(heads, str) else heads:
        for kind in ("bias", "weight"):
            if f"{head}.{kind}" in weights:
                return {"num_classes": int(weights[f"{head}.{kind}"].shape[0])}
    return {}


def recipe_of(folder: Path, config: dict[str, Any]) -> Recipe:
    """How the model of a directory is built; ModelLoadError for what config.json lacks or asks."""
    where = str(folder / "config.json")
    if "timm_args" in config:
        given, classes = config["timm_args"], config.get("classes")
        data: Any = {"crop_pct": 1.0, "interpolation": "bicubic", **config}
        missing = [key for key in ("mean", "std", "input_size") if key not in config]
        if missing:
            raise ModelLoadError(f"{where}: lacks {', '.join(missing)}")
    else:
        given = config.get("model_args") or {}
        data = config.get("pretrained_cfg")
        if not isinstance(data, dict):
            raise ModelLoadError(f"{where}: pretrained_cfg is no object")
        classes = config.get("label_names", data.get("label_names"))
    if not (classes is None or isinstance(classes, list)):
        raise ModelLoadError(f"{where}: the class names are no list")
    args = checked_arguments(given, where)
    if "timm_args" not in config:
        args |= checked_arguments({"num_classes": config.get("num_classes", 1000)}, where)
    architecture = str(config.get("architecture", _DEFAULT_CLASS))
    chosen = {key: data[key] for key in _DATA_KEYS if data.get(key) is not None}
    for key, value in chosen.items():
        if not _DATA_KEYS[key](value):
            raise ModelLoadError(f"{where}: {key} is {str(value)[:60]}, which timm has no use for")
    return Recipe(architecture=architecture, args=args, data=chosen, classes=classes)


def built(recipe: Recipe, weights: Mapping[str, torch.Tensor], where: str) -> nn.Module:
    """The module with weights drawn from a copy of the random state; ModelLoadError.

    One that is far larger than its `weights` is not built.
    """
    import timm

    name = recipe.architecture
    make: Callable[..., nn.Module] = partial(timm.create_model, name, pretrained=False)
    if not (plain_name(name) and timm.is_model(name)):
        make = _timm_class(name, where)
    # initial weights must not move the user's random state
    with torch.random.fork_rng(devices=[]), Budget(size_of(weights), where):
        try:
            module: nn.Module = make(**recipe.args)
        except _BUILD_ERRORS as error:
            raise ModelLoadError(f"{where}: {name} cannot be built: {error}") from error
    return module


def _timm_class(path: str, where: str) -> Callable[..., nn.Module]:
    module, _, name = path.rpartition(".")
    function = None
    if re.fullmatch(r"timm\.models\.[a-z]\w*", module):  # a config may name nothing else
        try:
            function = getattr(import_module(module), name, None)
        except ModuleNotFoundError:
            function = None
    own = str(getattr(function, "__module__", "")).startswith("timm.models.")
    if not (own and isinstance(function, type) and issubclass(function, nn.Module)):
        raise ModelLoadError(
            f"{where}: architecture {path!r} is no timm model name and no class of timm.models"
        )
    return function


def _class_names(module: nn.Module, recipe: Recipe, where: str) -> tuple[str, ...]:
    count = int(getattr(module, "num_classes", 0) or 0)
    if count == 0:
        raise ModelLoadError(f"{where}: the model has no classifier (num_classes is 0)")
    if recipe.classes is not None:
        if len(recipe.classes) != count:
            raise ModelLoadError(f"{where}: {len(recipe.classes)} class names for {count} classes")
        return unique_names([str(name) for name in recipe.classes])
    return default_names(count)


def default_names(count: int) -> tuple[str, ...]:
    """ImageNet's names for 1,000 classes, else the indices."""
    from timm.data import ImageNetInfo

    if count == 1000:
        return unique_names(ImageNetInfo("imagenet-1k").label_descriptions())
    return tuple(str(index) for index in range(count))
