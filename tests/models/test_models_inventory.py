"""The files that are recorded of a model are those that its digest covers."""

from pathlib import Path

import pytest
from tiny_models import bert, wordpiece

from transexplain.errors import ModelLoadError
from transexplain.models.load import load_model, present_files


def check(source: str) -> dict[str, str]:
    """Names and digests of a model's files, after both ways of finding them agree."""
    ref = load_model(source).ref
    planned = {one.path: one.sha256 for one in ref.files}
    assert set(present_files(source)) == set(planned)
    assert all(path.is_file() for path in present_files(source).values())
    return planned


def test_a_text_model(bert_dir: Path) -> None:
    before = check(str(bert_dir))
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(before)
    (bert_dir / "README.md").write_text("words")
    (bert_dir / "other.safetensors").write_bytes(b"no part of it")
    assert check(str(bert_dir)) == before
    config = bert_dir / "config.json"
    config.write_text(config.read_text() + " ")
    after = check(str(bert_dir))
    assert {name for name in after if after[name] != before[name]} == {"config.json"}


def test_weights_in_several_files(tmp_path: Path) -> None:
    bert().save_pretrained(tmp_path, max_shard_size="5KB")
    wordpiece().save_pretrained(tmp_path)
    names = check(str(tmp_path))
    weights = [name for name in names if name.endswith(".safetensors")]
    assert len(weights) > 1
    (tmp_path / weights[0]).unlink()
    assert weights[0] not in present_files(str(tmp_path))


def test_pictures(vit_dir: Path) -> None:
    assert "preprocessor_config.json" in check(str(vit_dir))
    assert load_model(vit_dir).ref.attention in ("sdpa", "eager")


def test_a_timm_checkpoint(tmp_path: Path) -> None:
    import timm
    from safetensors.torch import save_file

    path = tmp_path / "w.safetensors"
    save_file(timm.create_model("test_vit").state_dict(), path)
    source = f"timm:test_vit?checkpoint={path}"
    assert set(check(source)) == {"test_vit/w.safetensors"}
    assert load_model(source).ref.attention == "sdpa"
    path.unlink()
    assert present_files(source) == {}


def test_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="there is no model directory"):
        present_files(str(tmp_path / "absent"))
