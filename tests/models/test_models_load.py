"""Loading from directories, checkpoints and hub ids, and every model that must not load."""

import json
import logging
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import transformers
from model_folders import edit, refused
from PIL import Image
from safetensors.torch import load_file, save_file
from tiny_models import bert, text_items, wordpiece

from transexplain.errors import ModelLoadError
from transexplain.models.load import load_model, present_files
from transexplain.models.loaded_model import Encoded


def test_text_model_from_a_directory(bert_dir: Path) -> None:
    model = load_model(str(bert_dir))
    ref = model.ref
    assert model.modality == ref.modality == "text"
    assert model.classes == ref.classes == ("bad", "so-so", "good")
    assert (ref.source, ref.dtype, ref.device) == (str(bert_dir), "float32", "cpu")
    assert not any(part.training for part in model.module.modules())
    assert model.module.config._attn_implementation == "sdpa"  # type: ignore[union-attr]
    batch = model.collate(model.encode(text_items("a nice film")))  # type: ignore[arg-type]
    with torch.no_grad():
        expected = bert()(**batch.inputs).logits
        # not bit by bit: the kernel may depend on how a weight lies in memory
        assert torch.allclose(model.module(**batch.inputs).logits, expected, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_half_precision_files_load_as_the_requested_type(bert_dir: Path, dtype: str) -> None:
    bert().half().save_pretrained(bert_dir)
    stored = load_file(bert_dir / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    model = load_model(bert_dir, dtype=dtype)
    assert {str(p.dtype) for p in model.module.parameters()} == {f"torch.{dtype}"}
    assert model.ref.dtype == dtype


def test_loading_says_nothing_and_leaves_logging_alone(
    bert_dir: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    transformers.logging.set_verbosity_info()
    try:
        load_model(bert_dir)
        assert transformers.logging.get_verbosity() == logging.INFO
        assert transformers.utils.logging.is_progress_bar_enabled()
    finally:
        transformers.logging.set_verbosity_warning()
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_loading_leaves_the_random_state_alone(bert_dir: Path, timm_dir: Path) -> None:
    state = torch.get_rng_state()
    load_model(bert_dir)
    load_model(timm_dir)
    assert torch.equal(torch.get_rng_state(), state)


def test_sharded_weights(bert_dir: Path) -> None:
    before = load_model(bert_dir)
    (bert_dir / "model.safetensors").unlink()
    bert(id2label={0: "bad", 1: "so-so", 2: "good"}).save_pretrained(bert_dir, max_shard_size="8KB")
    shards = sorted(bert_dir.glob("model-*.safetensors"))
    assert len(shards) > 1
    after = load_model(bert_dir)
    for name, tensor in before.module.state_dict().items():
        assert torch.equal(after.module.state_dict()[name], tensor)
    shards[-1].unlink()
    refused(bert_dir, shards[-1].name)


def test_class_names_that_the_config_contradicts_are_named(bert_dir: Path) -> None:
    edit(bert_dir / "config.json", label2id={"bad": 2, "so-so": 1, "good": 0})
    with pytest.warns(UserWarning, match=r"0 'bad' .* 2 .*id2label is used"):
        assert load_model(bert_dir).classes == ("bad", "so-so", "good")


def test_digest_follows_what_decides_the_result(bert_dir: Path, tmp_path: Path) -> None:
    first = load_model(bert_dir).ref.digest
    assert len(first) == 64
    (bert_dir / "README.md").write_text("notes")
    (bert_dir / "training.json").write_text("{}")
    copy = tmp_path / "elsewhere"
    shutil.copytree(bert_dir, copy)
    assert load_model(bert_dir, dtype="float64").ref.digest == first
    assert load_model(copy).ref.digest == first
    edit(copy / "tokenizer_config.json", model_max_length=9)
    changed = load_model(copy).ref.digest
    weights = load_file(bert_dir / "model.safetensors")
    weights["classifier.bias"][0] += 1
    save_file(weights, bert_dir / "model.safetensors", metadata={"format": "pt"})
    assert len({first, changed, load_model(bert_dir).ref.digest}) == 3


def test_timm_model_from_a_directory(timm_dir: Path) -> None:
    model = load_model(timm_dir)
    assert model.classes == ("cat", "dog", "cow")
    [one] = model.encode(text_items(Image.new("RGB", (16, 16), (255, 0, 255))))
    assert isinstance(one, Encoded)
    expected = torch.tensor([1.0, -1.0, 2.0])
    assert torch.allclose(one.inputs["pixel_values"], expected[:, None, None].expand(3, 16, 16))


@pytest.mark.parametrize(("count", "first"), [(5, "0"), (1000, "tench, Tinca tinca")])
def test_timm_model_by_name_with_a_checkpoint(tmp_path: Path, count: int, first: str) -> None:
    torch.manual_seed(1)
    module = timm.create_model("vit_tiny_patch16_224", num_classes=count).eval()
    path = tmp_path / "w+x&y=z.safetensors"
    save_file(module.state_dict(), path)
    model = load_model(f"timm:vit_tiny_patch16_224?checkpoint={path}")
    assert model.classes[0] == first
    assert len(set(model.classes)) == count
    assert model.ref.source.endswith(path.name)
    picture = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        assert torch.equal(model.module(picture), module(picture))


def only_pickle(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-40])


def without(*names: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        kept = {name: tensor for name, tensor in weights.items() if not name.startswith(names)}
        save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})

    return remove


def extra_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["head.extra.weight"] = torch.zeros(2)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def remove(*names: str) -> Callable[[Path], None]:
    def unlink(folder: Path) -> None:
        for name in names:
            (folder / name).unlink(missing_ok=True)

    return unlink


def config(name: str = "config.json", **changes: Any) -> Callable[[Path], None]:
    return lambda folder: edit(folder / name, **changes)


def text_of(name: str, text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(text)

    return write


def numbers_beyond_the_model(folder: Path) -> None:
    """The tokenizer of a larger vocabulary."""
    path = folder / "tokenizer.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    words = found["model"]["vocab"]
    found["model"]["vocab"] = {
        word: number if word.startswith("[") else number + 5_000 for word, number in words.items()
    }
    path.write_text(json.dumps(found), encoding="utf-8")


POINTER = "version https://git-lfs.github.com/spec/v1\n"
FOUR = {str(index): name for index, name in enumerate("abcd")}
AUTO = {"AutoModelForSequenceClassification": "evil.Model"}
BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "no weights": (remove("model.safetensors"), "holds no weights; expected model.safetensors"),
    "only a pickle": (only_pickle, "only as pytorch_model.bin.*convert"),
    "cut weights": (cut_weights, "not a whole safetensors file"),
    "large file pointer": (text_of("model.safetensors", POINTER), "not a whole safetensors file"),
    "no head": (without("classifier"), "missing.*classifier.bias, classifier.weight"),
    "extra weight": (extra_weight, "not of this model: head.extra.weight"),
    "more classes": (config(id2label=FOUR), r"\(3, 16\).*\(4, 16\).*id2label names 4 classes"),
    "other size": (config(hidden_size=8), "mismatch|another shape"),
    "no config": (remove("config.json"), "no config.json"),
    "broken config": (text_of("config.json", "{"), "config.json cannot be read as JSON"),
    "config is a list": (text_of("config.json", "[]"), "no JSON object"),
    "own code": (config(auto_map=AUTO), "auto_map"),
    "own code in a part": (config(text_config={"auto_map": AUTO}), "auto_map"),
    "own tokenizer code": (config("tokenizer_config.json", auto_map=AUTO), "auto_map"),
    "fetched attention": (config(attn_implementation="someone/kernel"), "code to fetch"),
    "unknown type": (config(model_type="nonesuch"), "knows no model_type 'nonesuch'"),
    "no type": (config(model_type=None), "no model_type None"),
    "not a classifier": (config(model_type="whisper"), "no sequence, token or image classifier"),
    "no tokenizer": (remove("tokenizer.json"), "holds no tokenizer"),
    "broken tokenizer": (text_of("tokenizer.json", "{}"), "tokenizer in .* cannot be loaded"),
    "another tokenizer": (numbers_beyond_the_model, "the tokenizer of another model; save the"),
    "adapter": (text_of("adapter_config.json", "{}"), "adapter"),
}


@pytest.mark.parametrize("case", BAD)
def test_directories_that_must_not_load(bert_dir: Path, case: str) -> None:
    break_it, reported = BAD[case]
    break_it(bert_dir)
    refused(bert_dir, reported)


def test_a_pooler_nobody_uses_is_no_obstacle(tmp_path: Path) -> None:
    """RoBERTa classifiers are often saved with the pooler of the encoder they grew from."""
    module = transformers.RobertaForSequenceClassification(
        transformers.RobertaConfig(
            vocab_size=18, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=24, max_position_embeddings=20,
        )
    )  # fmt: skip
    module.save_pretrained(tmp_path)
    wordpiece(model_input_names=["input_ids", "attention_mask"]).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["roberta.pooler.dense.bias"] = torch.zeros(16)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert load_model(tmp_path).classes == ("LABEL_0", "LABEL_1")


#: a source, which may lie in the folder of the test, and what is reported
SOURCES: list[tuple[str, str, dict[str, str]]] = [
    ("{}/model.safetensors", "is a file", {}),
    *((name, "no model directory", {}) for name in ("{}/nowhere", "./nowhere", "a/b/c", "")),
    ("nowhere/at-all", "float64, float32", {"dtype": "int8"}),
    ("nowhere/at-all", "unknown device", {"device": "toaster"}),
    ("some-org/some-model", "hub cache.*give its directory", {}),
    ("some-org/some-model@v1", "hub cache", {}),
    ("timm:vit_tiny_patch16_224", "checkpoint=FILE.safetensors", {}),
    ("timm:vit_tiny_patch16_225?checkpoint=x.safetensors", "did you mean 'vit_tiny", {}),
    ("timm:hf-hub:a/b", "no model", {}),
    ("timm:vit_tiny_patch16_224?random=0", "checkpoint=FILE", {}),
    ("timm:vit_tiny_patch16_224?checkpoint=", "checkpoint=FILE", {}),
    ("timm:vit_tiny_patch16_224?checkpoint=none.safetensors", "none.safetensors is not", {}),
    ("timm:vit_tiny_patch16_224?checkpoint={}/model.safetensors", "missing.*blocks.0", {}),
    ("timm:vit_tiny_patch16_224?checkpoint={}/weights.pth", r"no \.safetensors", {}),
]


@pytest.mark.parametrize(("source", "reported", "options"), SOURCES)
def test_sources_that_are_no_model(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    source: str,
    reported: str,
    options: dict[str, str],
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    save_file({"head.bias": torch.zeros(2)}, tmp_path / "model.safetensors")
    torch.save({"head.bias": torch.zeros(2)}, tmp_path / "weights.pth")
    refused(source.format(tmp_path), reported, **options)


def test_an_image_model_needs_its_processor(vit_dir: Path) -> None:
    remove("preprocessor_config.json", "processor_config.json")(vit_dir)
    refused(vit_dir, "holds no image processor")


def test_a_cached_hub_model_loads_and_records_its_commit(
    monkeypatch: pytest.MonkeyPatch, bert_dir: Path, tmp_path: Path
) -> None:
    commit = "0123456789" * 4
    snapshot = tmp_path / "snapshots" / commit
    shutil.copytree(bert_dir, snapshot)
    requested: list[dict[str, Any]] = []

    def download(repo: str, **options: Any) -> str:
        requested.append({"repo": repo, **options})
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    model = load_model("some-org/some-model@main")
    assert model.ref.source == f"some-org/some-model@{commit}"
    assert (requested[0]["repo"], requested[0]["revision"]) == ("some-org/some-model", "main")
    assert not any(
        pattern.endswith((".bin", ".py", ".pt")) for pattern in requested[0]["allow_patterns"]
    )
    assert model.ref.digest == load_model(bert_dir).ref.digest


def test_texts_are_cut_where_the_tokenizer_file_says(bert_dir: Path) -> None:
    path = bert_dir / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["truncation"] = {
        "direction": "Right",
        "max_length": 6,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    model = load_model(bert_dir)
    long = "good " * 12
    [one] = model.encode(text_items(long))
    assert isinstance(one, Encoded)
    assert (one.length, one.truncated) == (6, True)
    [longer] = model.encode(text_items(long), max_length=10)
    assert isinstance(longer, Encoded)
    assert longer.length == 10, "a larger limit is used"
    [given] = model.encode(text_items({"input_ids": [2, *[11] * 8, 3]}))
    assert isinstance(given, Encoded)
    assert given.length == 10, "encoded inputs are taken as they are"


@pytest.mark.exhaustive
def test_loading_in_threads_leaves_transformers_as_it_was(
    bert_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it loads it patches its classes; two loads must not put the patches back crosswise."""
    from transformers import BertForSequenceClassification, PreTrainedModel

    whole, original = PreTrainedModel.tie_weights, BertForSequenceClassification.__init__
    inside, most = 0, 0

    def slow(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.2)  # long enough for the other thread to begin
        original(self, *args, **kwargs)
        inside -= 1

    monkeypatch.setattr(BertForSequenceClassification, "__init__", slow)
    with ThreadPoolExecutor(2) as pool:
        assert len(list(pool.map(lambda _: load_model(str(bert_dir)), range(4)))) == 4
    assert most == 1, "two models were loaded at once"
    assert PreTrainedModel.tie_weights is whole


# --- the files that are recorded of a model are those that its digest covers


def recorded(source: str) -> dict[str, str]:
    """Names and digests of a model's files, after both ways of finding them agree."""
    ref = load_model(source).ref
    planned = {one.path: one.sha256 for one in ref.files}
    assert set(present_files(source)) == set(planned)
    assert all(path.is_file() for path in present_files(source).values())
    return planned


def test_files_of_a_text_model(bert_dir: Path) -> None:
    before = recorded(str(bert_dir))
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(before)
    (bert_dir / "README.md").write_text("words")
    (bert_dir / "other.safetensors").write_bytes(b"no part of it")
    assert recorded(str(bert_dir)) == before
    config = bert_dir / "config.json"
    config.write_text(config.read_text() + " ")
    after = recorded(str(bert_dir))
    assert {name for name in after if after[name] != before[name]} == {"config.json"}


def test_files_of_weights_in_parts(tmp_path: Path) -> None:
    bert().save_pretrained(tmp_path, max_shard_size="5KB")
    wordpiece().save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match="there is no model directory"):
        present_files(str(tmp_path / "absent"))
    names = recorded(str(tmp_path))
    weights = [name for name in names if name.endswith(".safetensors")]
    assert len(weights) > 1
    (tmp_path / weights[0]).unlink()
    assert weights[0] not in present_files(str(tmp_path))


def test_files_of_a_timm_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file(timm.create_model("test_vit").state_dict(), path)
    source = f"timm:test_vit?checkpoint={path}"
    assert set(recorded(source)) == {"test_vit/w.safetensors"}
    assert load_model(source).ref.attention == "sdpa"
    path.unlink()
    assert present_files(source) == {}
