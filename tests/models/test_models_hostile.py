"""Model directories that ask for code, other files or endless work: all refused, and at once."""

import json
import pickle
from pathlib import Path
from typing import Any

import architectures_hybrid
import architectures_timm
import pytest
import torch
from architectures import ARCHITECTURES
from model_folders import SMALL, TIMM_ARGS, edit, refused
from safetensors.torch import load_file, save_file
from tiny_models import SIZES, text_items

from transexplain.errors import ModelLoadError
from transexplain.models.configs import read_config
from transexplain.models.hub import read_weights, weight_files
from transexplain.models.huggingface import read_module
from transexplain.models.load import load_model
from transexplain.models.timm_models import built, checked_arguments, recipe_of

PICTURES = {"mean": [0.5] * 3, "std": [0.5] * 3, "input_size": [3, 16, 16]}


class Trap:
    """Unpickling this makes a file."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.made,)


@pytest.fixture
def hub_dir(timm_dir: Path) -> Path:
    """The same model in timm's own form."""
    (timm_dir / "config.json").unlink()
    edit(
        timm_dir / "config.json",
        architecture="vit_tiny_patch16_224",
        num_classes=3,
        model_args=SMALL,
        pretrained_cfg=PICTURES,
    )
    return timm_dir


def trap(folder: Path) -> Path:
    """A pickle in the folder, and the file that there is once it was read."""
    made = folder / "made"
    with (folder / "weights.pth").open("wb") as file:
        pickle.dump(Trap(made), file)
    return made


@pytest.mark.parametrize("form", ["timm_args", "model_args"])
@pytest.mark.parametrize("name", ["weights.pth", "other.safetensors"])
def test_no_argument_names_a_checkpoint(hub_dir: Path, form: str, name: str) -> None:
    made = trap(hub_dir)
    save_file(load_file(hub_dir / "model.safetensors"), hub_dir / "other.safetensors")
    assert load_model(hub_dir).classes == ("0", "1", "2")
    args = {**TIMM_ARGS, "checkpoint_path": str(hub_dir / name)}
    if form == "timm_args":
        edit(hub_dir / "config.json", timm_args=args, **PICTURES)
    else:
        edit(hub_dir / "config.json", model_args=args)
    refused(hub_dir, r"config\.json: the argument checkpoint_path .*opens the file.*remove it")
    assert not made.exists()


BAD_ARGUMENTS: dict[str, tuple[Any, str]] = {
    "pretrained": (True, "fetches"),
    "pretrained_cfg": ({"file": "/etc/passwd"}, "fetches"),
    "pretrained_cfg_overlay": ({"hf_hub_id": "some/one"}, "fetches"),
    "pretrained_strict": (False, "fetches"),
    "cache_dir": ("/tmp", "directory"),
    "features_only": (True, "without a classifier"),
    "feature_cls": ("hook", "without a classifier"),
    "scriptable": (True, "layer's code"),
    "exportable": (True, "layer's code"),
    "no_jit": (True, "layer's code"),
    "device": ("cuda", "where the model is loaded"),
    "dtype": ("float16", "where the model is loaded"),
    "kwargs_filter": (["depth"], "arguments away"),
    "block_fn": ("os.system", "none of the arguments"),
    "cfg": ({"depths": [1]}, "none of the arguments"),
    "drop_path": (0.1, "none of the arguments"),
    "depth": (10**9, "no whole number up to 1,024"),
    "embed_dim": (10**9, "no whole number"),
    "img_size": ([16, 10**6], "no whole number up to 4,096"),
    "num_classes": (10**9, "no whole number"),
    "num_heads": ("2", "no whole number"),
    "patch_size": (8.5, "no whole number"),
    "mlp_ratio": (1e12, "no number"),
    "drop_rate": (float("nan"), "no number"),
    "qkv_bias": ("yes", "no true or false"),
    "global_pool": ("../avg", "no word"),
    "weight_init": ({"a": 1}, "holds an object"),
    "depths": ([1] * 1000, "more than 256"),
    "norm_layer": ("torch.nn.LayerNorm", "none of batchnorm"),
    "act_layer": ("inplace_abn", "none of celu"),
    "attn_layer": ("evil", "none of attn, diff"),
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_arguments_of_timm_are_taken_by_name_type_and_size(timm_dir: Path, name: str) -> None:
    value, reported = BAD_ARGUMENTS[name]
    with pytest.raises(ModelLoadError, match=rf"here: the argument {name}.*{reported}.*use wrap"):
        checked_arguments({**TIMM_ARGS, name: value}, "here")
    edit(timm_dir / "config.json", timm_args={**TIMM_ARGS, name: value})
    refused(timm_dir, name)


def test_plain_arguments_of_timm_are_taken(timm_dir: Path) -> None:
    more = {"norm_layer": "layernorm", "act_layer": "gelu_tanh", "qkv_bias": True, "mlp_ratio": 4}
    edit(timm_dir / "config.json", timm_args={**TIMM_ARGS, **more, "global_pool": "token"})
    assert load_model(timm_dir).classes == ("cat", "dog", "cow")
    nested = {"depth": [[1, 1, 0]], "window_size": None, "res_scale_init_values": [None, 1.0]}
    assert checked_arguments(nested, "here") == nested


NO_NAME = "no timm model name and no class of timm.models"
#: what a config of timm says, in the form of a training or of the hub, and what is reported
BAD_CONFIGS: list[tuple[str, dict[str, Any], str]] = [
    *(
        ("timm_dir", {"architecture": name}, NO_NAME)
        for name in (
            *("local-dir:.", "hf-hub:some/one", "timm.models._features.FeatureListNet"),
            *("timm.models.vit.X", "timm.models.vision_transformer.nn"),
            "timm.models.vision_transformer.partial",
        )
    ),
    ("timm_dir", {"input_size": [3, 10**9, 10**9]}, "input_size"),
    ("timm_dir", {"input_size": "wide"}, "input_size"),
    ("timm_dir", {"crop_pct": 1e-9}, "crop_pct"),
    ("timm_dir", {"mean": "abc"}, "mean"),
    ("timm_dir", {"interpolation": "../x"}, "interpolation"),
    ("timm_dir", {"interpolation": "nonesuch"}, "makes no pictures"),
    ("timm_dir", {"classes": 3}, "no list"),
    ("timm_dir", {"timm_args": [1]}, "no object"),
    ("timm_dir", {"architecture": "os.path.join"}, "no class of timm.models"),
    ("timm_dir", {"architecture": "timm.models.nowhere.Thing"}, "no class of timm.models"),
    ("timm_dir", {"classes": ["cat"]}, "1 class names for 3 classes"),
    ("timm_dir", {"mean": None}, "lacks mean"),
    ("timm_dir", {"timm_args": {**TIMM_ARGS, "depth": 3}}, "missing.*blocks.2"),
    ("timm_dir", {"timm_args": {**TIMM_ARGS, "depth": 1}}, "not of this model.*blocks.1"),
    ("timm_dir", {"timm_args": {**TIMM_ARGS, "num_classes": 5}}, r"head.bias has shape \(3,\)"),
    ("timm_dir", {"timm_args": {**TIMM_ARGS, "num_classes": 0}}, "head|no classifier"),
    ("timm_dir", {"input_size": [3, 32, 32]}, "does not take pictures"),
    ("timm_dir", {"timm_args": {**TIMM_ARGS, "embed_dim": 1 << 16, "depth": 1000}}, "far larger"),
    ("hub_dir", {"model_args": [1]}, "no object"),
    ("hub_dir", {"pretrained_cfg": "x"}, "no object"),
]


@pytest.mark.parametrize(("folder", "changes", "reported"), BAD_CONFIGS)
def test_configs_of_timm_are_checked(
    request: pytest.FixtureRequest, folder: str, changes: dict[str, Any], reported: str
) -> None:
    path = request.getfixturevalue(folder)
    edit(path / "config.json", **changes)
    refused(path, reported)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"architecture": "local-dir:."}, "no timm model name"),
        ({"model_args": {"checkpoint_path": "weights.pth"}}, "argument checkpoint_path"),
    ],
)
def test_the_wrapper_of_timm_hands_nothing_on(
    timm_dir: Path, changes: dict[str, Any], reported: str, inside: bool
) -> None:
    wrapper = {"model_type": "timm_wrapper", "architecture": "test_vit", **changes}
    whole = {"model_type": "vit", "part": wrapper} if inside else wrapper
    (timm_dir / "config.json").write_text(json.dumps(whole))
    refused(timm_dir, reported)


CONFIG = "config.json"
TOKENIZER, PROCESSOR = "tokenizer_config.json", "preprocessor_config.json"
HOSTILE: dict[str, tuple[str, dict[str, Any], str]] = {
    "kernel of a part": (CONFIG, {"part": {"_attn_implementation": "some/one"}}, "code to fetch"),
    "kernels": (CONFIG, {"use_kernels": True}, "use_kernels"),
    "quantized": (CONFIG, {"quantization_config": {"quant_method": "awq"}}, "packed weights"),
    "other weights": (CONFIG, {"transformers_weights": "adapter_model.bin"}, "another file"),
    "fusion": (CONFIG, {"fusion_config": {"patch_embeddings": True}}, "patch the model"),
    "backbone": (CONFIG, {"backbone": "some/one"}, "model to fetch"),
    "number type": (CONFIG, {"dtype": "hub"}, "dtype is 'hub'"),
    "number type of a part": (CONFIG, {"part": {"torch_dtype": "load"}}, "torch_dtype is 'load'"),
    "layers": (CONFIG, {"num_hidden_layers": 10**9}, "num_hidden_layers is 1,000,000,000"),
    "layers, as a float": (CONFIG, {"num_hidden_layers": 1e9}, "num_hidden_layers is 1,000"),
    "many layers": (CONFIG, {"num_hidden_layers": 4000}, "far larger model than its weights"),
    "wide": (CONFIG, {"hidden_size": 2 * 10**6}, "far larger model than its weights"),
    "positions": (CONFIG, {"max_position_embeddings": 10**12}, "far larger model"),
    "beyond numbers": (CONFIG, {"hidden_size": 10**30}, "cannot load"),
    "labels": (CONFIG, {"id2label": None, "num_labels": 10**9}, "num_labels is 1,000,000,000"),
    "a word for a number": (CONFIG, {"hidden_size": "wide"}, "cannot load"),
    "a list for a number": (CONFIG, {"num_hidden_layers": [2]}, "cannot load"),
    "no heads": (CONFIG, {"num_attention_heads": 0}, "cannot load"),
    "a tokenizer's file": (TOKENIZER, {"vocab_file": "/etc/passwd"}, "vocab_file names a file"),
    "files of a tokenizer": (TOKENIZER, {"fast_tokenizer_files": ["../../x"]}, "names a file"),
    "a packed tokenizer": (TOKENIZER, {"gguf_file": "../x.gguf"}, "gguf_file names a file"),
    "inputs": (TOKENIZER, {"init_inputs": ["/etc/passwd"]}, "init_inputs gives"),
    "tokenizer of parts": (TOKENIZER, {"tokenizer_class": "RagTokenizer"}, "no name of a tok"),
    "any tokenizer": (TOKENIZER, {"tokenizer_class": "AutoTokenizer"}, "no name of a tok"),
    "no tokenizer": (TOKENIZER, {"tokenizer_class": "pipeline"}, "no name of a tokenizer"),
    "a map's file": ("special_tokens_map.json", {"vocab_file": "/etc/passwd"}, "names a file"),
    "a map of code": ("special_tokens_map.json", {"auto_map": {"a": "b.c"}}, "auto_map"),
    "a processor": (PROCESSOR, {"auto_map": {"a": "b.c"}}, "auto_map"),
    **{
        f"processor of {changes}": (PROCESSOR, changes, reported)
        for changes, reported in (
            ({"image_processor_type": "pipeline"}, "no name of a"),
            ({"image_processor_type": "AutoImageProcessor"}, "no name of a"),
            ({"feature_extractor_type": "AutoModel"}, "no name of a"),
            ({"size": {"height": 10**9, "width": 10**9}}, "(height|width) is 1,000,000,000"),
            ({"size": 10**9}, "size is 1,000"),
            ({"image_mean": [0.5, 0.5, 0.5, 0.5]}, "the image processor in"),
            ({"image_mean": [[0.5], 0.5, 0.5]}, "the image processor in"),
            ({"rescale_factor": "a quarter"}, "the image processor in"),
        )
    },
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_directories(request: pytest.FixtureRequest, case: str) -> None:
    name, changes, reported = HOSTILE[case]
    folder = request.getfixturevalue("vit_dir" if name == PROCESSOR else "bert_dir")
    edit(folder / name, **changes)
    refused(folder, reported)


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        (CONFIG, "more than 32 levels"),
        (TOKENIZER, "more than 32 levels"),
        ("tokenizer.json", "tokenizer.*cannot be"),
    ],
)
@pytest.mark.parametrize("depth", [200, 100_000])
def test_deep_files(bert_dir: Path, name: str, reported: str, depth: int) -> None:
    (bert_dir / name).write_text('{"a":' + "[" * depth + "]" * depth + "}")
    refused(bert_dir, reported)


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json", "model.safetensors", "more/a.txt"])
def test_a_link_out_of_the_folder_is_refused(bert_dir: Path, tmp_path: Path, name: str) -> None:
    path, outside = bert_dir / name, tmp_path / "outside"
    outside.write_bytes(path.read_bytes() if path.is_file() else b"x")
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(outside)
    refused(bert_dir, "is a link to")


def test_links_within_a_folder_and_to_the_cache_of_the_hub_are_read(
    bert_dir: Path, tmp_path: Path
) -> None:
    weights = bert_dir / "model.safetensors"
    weights.rename(bert_dir / "weights")
    weights.symlink_to("weights")
    assert load_model(bert_dir).classes
    cached, blobs = tmp_path / "models--a--b" / "snapshots" / "0a", tmp_path / "models--a--b/blobs"
    cached.mkdir(parents=True)
    blobs.mkdir()
    for path in bert_dir.iterdir():
        (blobs / path.name).write_bytes(path.read_bytes())
        (cached / path.name).symlink_to(Path("../../blobs") / path.name)
    assert load_model(cached).classes
    (tmp_path / "given").symlink_to(bert_dir)
    assert load_model(tmp_path / "given").classes


def replaced(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


GROWING: dict[str, dict[str, Any]] = {
    "texts": {"normalizer": [replaced({"String": "a"}, "a" * 10)] * 8},
    "expressions": {"normalizer": [replaced({"Regex": ""}, "a")] * 20},
    "nested": {
        "normalizer": [{"type": "Sequence", "normalizers": [replaced({"String": "a"}, "ab" * 50)]}]
    },
    "prefixes": {"normalizer": [{"type": "Prepend", "prepend": "a" * 100_000}]},
    "copies": {"copies": 1000},
    "positions": {"ids": [0] * 10_000},
}


@pytest.mark.parametrize("how", GROWING)
def test_a_tokenizer_that_multiplies_texts_is_refused(bert_dir: Path, how: str) -> None:
    changes = GROWING[how]
    special = {
        "id": "[CLS]",
        "ids": changes.get("ids", [0]),
        "tokens": ["[CLS]"] * len(changes.get("ids", [0])),
    }
    copies = [{"Sequence": {"id": "A", "type_id": 0}}] * changes.get("copies", 1)
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, *copies],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"[CLS]": special},
    }
    normalizer = {"type": "Sequence", "normalizers": changes.get("normalizer", [])}
    edit(bert_dir / "tokenizer.json", normalizer=normalizer, post_processor=template)
    refused(bert_dir, "times as long")


def test_a_text_that_a_tokenizer_would_make_too_long_is_an_error(bert_dir: Path) -> None:
    normalizer = replaced({"String": "a"}, "a" * 50)
    edit(bert_dir / "tokenizer.json", normalizer=normalizer)
    model = load_model(bert_dir)
    short, long = model.encode(text_items("a b", "a b" * 100_000))
    assert (long.item_id, long.kind) == ("i1", "too-long")
    assert short.length > 2


def test_a_tokenizer_that_panics_ends_no_process(bert_dir: Path) -> None:
    """What breaks in its Rust code arrives as a BaseException, as Ctrl-C does."""
    edit(
        bert_dir / "tokenizer.json", normalizer={"type": "Precompiled", "precompiled_charsmap": ""}
    )
    refused(bert_dir, "the tokenizer broke")


def test_a_text_that_a_tokenizer_panics_on_is_an_error(
    bert_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicException(BaseException):
        """As `pyo3_runtime` names its own, which nobody can import."""

    def broken(*_: Any, **__: Any) -> None:
        raise PanicException("index out of bounds")

    model = load_model(bert_dir)
    tokenizer = model.encoder.tokenizer  # type: ignore[attr-defined]
    monkeypatch.setattr(type(tokenizer), "__call__", broken)
    with pytest.raises(RuntimeError, match="the tokenizer broke: index out of bounds"):
        model.encode(text_items("a nice film"))


@pytest.mark.parametrize(("name", "megabytes"), [(CONFIG, 17), ("tokenizer.json", 257)])
def test_huge_files(bert_dir: Path, name: str, megabytes: int) -> None:
    with (bert_dir / name).open("r+b") as file:
        file.truncate(megabytes << 20)  # no disk is used for the zeros
    refused(bert_dir, rf"{name} has {megabytes} MB")


def test_a_name_that_an_old_tokenizer_kept_is_no_obstacle(bert_dir: Path) -> None:
    edit(bert_dir / TOKENIZER, special_tokens_map_file="/root/.cache/x.json", tokenizer_file=None)
    edit(bert_dir / CONFIG, torch_dtype="float32", transformers_version="4.1.0", step=10**9)
    assert load_model(bert_dir).classes == ("bad", "so-so", "good")


@pytest.mark.parametrize("name", ["../other/model.safetensors", "/tmp/model.safetensors", "a/b.x"])
def test_an_index_names_files_beside_it(bert_dir: Path, tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (bert_dir / "model.safetensors").rename(other / "model.safetensors")
    index = {"metadata": {}, "weight_map": {"classifier.bias": name}}
    (bert_dir / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(bert_dir, "no file beside it")


def test_no_other_weights_are_read_than_the_digest_covers(bert_dir: Path) -> None:
    weights = load_file(bert_dir / "model.safetensors")
    other = {name: torch.zeros_like(one) for name, one in weights.items()}
    piece = "shard-00001-model-00001-of-00001.safetensors"
    save_file(other, bert_dir / piece, metadata={"format": "pt"})
    refused(bert_dir, "piece of a distributed checkpoint")


def header(path: Path, length: int, text: bytes, data: bytes = b"") -> None:
    path.write_bytes(length.to_bytes(8, "little") + text + data)


def test_hostile_headers(bert_dir: Path) -> None:
    path = bert_dir / "model.safetensors"
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    for text, length in (
        (b"{}", 1 << 62),
        (b"{}", 1 << 27),
        (json.dumps({"a": entry, "b": entry}).encode(), None),
        (json.dumps({"a": {**entry, "shape": [1 << 40]}}).encode(), None),
        (b'{"a":' + b"[" * 100_000, None),
    ):
        header(path, len(text) if length is None else length, text, b"\0" * 4)
        refused(bert_dir, "not a whole safetensors file")
    header(path, 1 << 62, b"{}")
    refused(f"timm:test_vit?checkpoint={path}", "not a whole safetensors file")


@pytest.mark.exhaustive
def test_a_deep_model_that_fits_its_weights_is_built(tmp_path: Path) -> None:
    import transformers

    config = transformers.BertConfig(
        vocab_size=18, max_position_embeddings=20, **{**SIZES, "num_hidden_layers": 60}
    )
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    module, reported = read_module(tmp_path, "text", torch.float32)
    assert module.config.num_hidden_layers == 60
    assert not any(reported.values())


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["CANINE", "Doge", "Mixtral", "T5", "XLNet", "MobileViT", "Swin"])
def test_models_saved_by_transformers_are_read(tmp_path: Path, name: str) -> None:
    """Their own sizes are inside the bounds; the largest numbers are in Doge and CANINE."""
    architecture = ARCHITECTURES[name]
    architecture.make().save_pretrained(tmp_path)  # type: ignore[operator]
    read_config(tmp_path)
    read_module(tmp_path, architecture.modality, torch.float32)


@pytest.mark.parametrize("name", ["CrossViT", "Swin", "VOLO", "EfficientViT (MIT)", "MaxViT"])
def test_timm_models_saved_by_a_training_are_read(tmp_path: Path, name: str) -> None:
    rows = architectures_timm._MODELS | architectures_hybrid._MODELS
    model, side, settings = rows[name]
    module = ARCHITECTURES[f"timm {name}"].make()
    weights = {key: value.clone() for key, value in module.state_dict().items()}
    save_file(weights, tmp_path / "model.safetensors")
    path = f"timm.models.{model.replace(':', '.')}" if ":" in model else model
    pictures = {**PICTURES, "input_size": [3, side, side]}
    args = {**settings, "num_classes": 3}
    edit(tmp_path / "config.json", architecture=path, timm_args=args, **pictures)
    recipe = recipe_of(tmp_path, read_config(tmp_path))
    again = built(recipe, read_weights(weight_files(tmp_path)), "here")
    assert again.state_dict().keys() == weights.keys()


def test_the_arguments_of_every_architecture_are_known() -> None:
    """Beside those that no JSON can say: classes, records, dictionaries with numbers as keys."""
    rows = architectures_timm._MODELS | architectures_hybrid._MODELS
    known = 0
    for _, _, settings in rows.values():
        try:
            text = json.dumps(settings)
        except TypeError:
            continue
        if "crpe_window" not in settings:
            assert checked_arguments(json.loads(text), "here") == json.loads(text)
            known += 1
    assert known >= 65
