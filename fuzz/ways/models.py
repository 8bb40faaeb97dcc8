"""Model directories: an input is a folder of files, as `mutate.split_files` reads it.

A file `*.safetensors` that is a JSON object is the header: its length and zeros for its tensors
are put around it.
"""

import json
import shutil
from pathlib import Path

import pandas
import timm
import torch
import transformers
import transformers.models.bert.modeling_bert  # and what it imports, before the guard looks

from fuzz.guard import promise
from fuzz.mutate import split_files
from transexplain.models.load import load_model

__all__ = ["pandas", "target", "timm", "transformers"]

_FOLDER = Path("model")
_LARGEST = 1 << 20  #: bytes of tensors that are written


def target(data: bytes) -> None:
    """A model that loads has classes and a digest, and the random state is untouched."""
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir()
    for name, body in split_files(data).items():
        shown = "".join(one for one in name if one.isalnum() or one in "._-")[:80]
        if shown.strip("."):
            is_header = shown.endswith(".safetensors") and body.startswith(b"{")
            (_FOLDER / shown).write_bytes(_safetensors(body) if is_header else body)
    state = torch.random.get_rng_state()
    model = load_model(_FOLDER)
    promise(model.classes, "a classifier without classes")
    promise(len(model.ref.digest) == 64, "no digest")
    promise(torch.equal(state, torch.random.get_rng_state()), "the random state has moved")


def _safetensors(header: bytes) -> bytes:
    try:
        tensors = json.loads(header)
        ends = [one["data_offsets"][1] for key, one in tensors.items() if key != "__metadata__"]
        size = max(0, min(_LARGEST, max(ends, default=0)))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        size = 64
    return len(header).to_bytes(8, "little") + header + bytes(int(size))
