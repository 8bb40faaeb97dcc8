"""Model directories of tests: changes of their files, and their refusal."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from transexplain.errors import ModelLoadError
from transexplain.models.load import load_model

SMALL: dict[str, Any] = {
    "img_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2
}  # fmt: skip
TIMM_ARGS: dict[str, Any] = {**SMALL, "num_classes": 3}


def edit(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file, which need not be there yet; None removes one."""
    content = {**(json.loads(path.read_text()) if path.is_file() else {}), **changes}
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def refused(source: Path | str, reported: str, **options: str) -> None:
    """A clear error, soon: in about a second of work, and ten where the libraries come first."""
    begun = time.process_time()
    with pytest.raises(ModelLoadError, match=reported):
        load_model(source, **options)
    assert time.process_time() - begun < 10
