"""What the benchmark of the host explains: texts of a number of tokens, JPEG files, and models."""

import csv
import gzip
import itertools
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

from benchmarks import host_stand_in
from orchestrator.plan import PreparedAudit, prepare_audit
from orchestrator.spec import load_spec
from transexplain.settings import Settings

#: width and height of the pictures that are made where none are given
_SIZE = (640, 480)


#: files of their own that a table lists, one tar, or the cells of one Parquet file
Packing = Literal["files", "a tar", "Parquet"]
_SUFFIX: dict[Packing, str] = {"files": "csv", "a tar": "tar", "Parquet": "parquet"}
_ROW_GROUP = 100  #: rows, as the library datasets writes pictures


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One row of the benchmark."""

    tokens: int | None = None  #: of each text, special ones included; None: pictures
    items: int
    shard_size: int
    lexicon: Path | None = None
    batch_tokens: int | None = None
    packing: Packing = "files"  #: of pictures

    @property
    def name(self) -> str:
        """How the row is called."""
        if self.tokens is None:
            return f"pictures in {self.packing}"
        return f"texts of {self.tokens} tokens, {'lexicon' if self.lexicon else 'no lexicon'}"


def prepared(case: Case, *, model: str, data: Path, folder: Path) -> PreparedAudit:
    """The audit of a case by the stand-in device.

    Args:
        case: what is explained.
        model: where a model of texts is, for its tokenizer; pictures have a small one of 224 px.
        data: a file of texts, one column of which is `text` or `sentence`; or a folder of JPEGs.
        folder: where to write to.
    """
    source = folder / f"{case.tokens or 'pictures'}-{case.items}.{_SUFFIX[case.packing]}"
    overrides: dict[str, object] = {
        "data.source": str(source),
        "method": host_stand_in.NAME,
        "targets": ["predicted"],
        "evaluation.items": 0,
        "shard_size": case.shard_size,
    }
    if case.batch_tokens is not None:
        overrides["batch_tokens"] = case.batch_tokens
    if case.lexicon is not None:
        overrides["groups"] = {"lexicon": str(case.lexicon), "check": 0}
    if case.tokens is None:
        overrides |= {"model": small_vit(folder)}
        overrides |= {} if case.packing == "a tar" else {"data.image": "image"}
        _write_pictures(source, data, case)
    else:
        overrides |= {"model": model}
        _write_texts(source, model, data, case)
    settings = Settings(database_url="sqlite:///unused", snapshot_dir=folder)
    return prepare_audit(load_spec(None, overrides), settings)


def small_vit(folder: Path) -> str:
    """The address of a vision transformer of 224 px with random weights."""
    import timm
    from safetensors.torch import save_file

    path = folder / "vit.safetensors"
    if not path.is_file():
        torch.manual_seed(0)
        module = timm.create_model("vit_tiny_patch16_224", num_classes=10)
        save_file(module.state_dict(), path)
    return f"timm:vit_tiny_patch16_224?checkpoint={path}"


def _write_texts(source: Path, model: str, data: Path, case: Case) -> None:
    """Texts of exactly `tokens` tokens from the words of the data's texts, in their order."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    assert case.tokens is not None
    room = case.tokens - tokenizer.num_special_tokens_to_add()
    sizes: dict[str, int] = {}

    def size(word: str) -> int:
        if word not in sizes:
            sizes[word] = len(tokenizer(word, add_special_tokens=False)["input_ids"])
        return sizes[word]

    words = itertools.chain.from_iterable(text.split() for text in _endless(data))
    with source.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text"])
        for _ in range(case.items):
            text: list[str] = []
            left = room
            while left:
                word = next(words)
                if 0 < size(word) <= left:
                    text.append(word)
                    left -= size(word)
            rows.writerow([" ".join(text)])


def _endless(data: Path) -> Iterator[str]:
    """The texts of a tsv, tsv.gz or jsonl file, over and over."""
    opened = gzip.open if data.suffix == ".gz" else open
    while True:
        with opened(data, "rt", encoding="utf-8") as lines:
            if ".jsonl" in data.suffixes:
                yield from (line.partition('"text": "')[2].partition('"')[0] for line in lines)
            else:
                yield from (
                    line.rstrip("\n").split("\t")[-1] for line in itertools.islice(lines, 1, None)
                )


def _write_pictures(source: Path, data: Path, case: Case) -> None:
    """So many pictures, the files of `data` in turn, or made ones where it is empty."""
    files = picture_files(data, source.parent)
    some = list(itertools.islice(itertools.cycle(files), case.items))
    if case.packing == "a tar":
        with tarfile.open(source, "w") as tar:
            for number, path in enumerate(some):
                tar.add(source.parent / path, f"{number:06}.jpg")
    elif case.packing == "Parquet":
        cells = [{"bytes": (source.parent / path).read_bytes(), "path": path.name} for path in some]
        pq.write_table(pa.table({"image": cells}), source, row_group_size=_ROW_GROUP)
    else:
        with source.open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["id", "image"])
            rows.writerows((f"picture-{number}", path) for number, path in enumerate(some))


def picture_files(data: Path, folder: Path) -> Sequence[Path]:
    """JPEG files, copied under `folder` because a table may name no file outside of its folder."""
    target = folder / "pictures"
    if not target.is_dir():
        target.mkdir()
        found = sorted(data.rglob("*.jpg")) if data.is_dir() else []
        for path in found:
            (target / path.name).write_bytes(path.read_bytes())
        if not found:
            _make_pictures(target)
    return sorted(target.relative_to(folder) / one.name for one in target.iterdir())


def _make_pictures(target: Path) -> None:
    random = np.random.default_rng(0)
    for number in range(8):
        coarse = random.integers(0, 256, size=(12, 16, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize(_SIZE, Image.Resampling.BICUBIC).save(
            target / f"made-{number}.jpg", quality=90
        )


def decoding_loop(files: Sequence[Path], items: int) -> tuple[float, float]:
    """Processor seconds, and seconds, to decode so many files and make them 224 px, nothing else.

    The longer side is cut off in the middle, as the usual preparation of pictures does.
    """
    begun, at = time.process_time(), time.perf_counter()
    for path in itertools.islice(itertools.cycle(files), items):
        with Image.open(path) as opened:
            picture = opened.convert("RGB")
        share = 248 / min(picture.size)
        wide = (round(picture.width * share), round(picture.height * share))
        resized = picture.resize(wide, Image.Resampling.BICUBIC)
        left, top = (wide[0] - 224) // 2, (wide[1] - 224) // 2
        np.asarray(resized.crop((left, top, left + 224, top + 224)))
    return time.process_time() - begun, time.perf_counter() - at
