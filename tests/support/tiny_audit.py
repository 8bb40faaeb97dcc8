"""A tiny real audit on disk: model, texts, lexicon; what the end-to-end tests start from."""

import json
from collections.abc import Mapping
from pathlib import Path

from tiny_models import bert, wordpiece

WORDS = ("a", "film", "nice", "good", "goods", "x", "e", "unbelievably")


def texts(count: int) -> list[str]:
    """Texts of one to nine words, all different in length or order."""
    return [
        " ".join(WORDS[(i * 7 + j * (i % 5 + 1)) % len(WORDS)] for j in range(1 + i % 9))
        for i in range(count)
    ]


def make_audit(
    folder: Path, *, items: int = 40, lines: Mapping[int, str] | None = None, **keys: object
) -> Path:
    """Write model, data, lexicon and specification; returns the path of the specification.

    `lines` take the place of those of the data.
    """
    model = folder / "model"
    bert(id2label={0: "bad", 1: "so-so", 2: "good"}).save_pretrained(model)
    wordpiece().save_pretrained(model)
    rows = {
        i: json.dumps({"text": text, "label": ("bad", "so-so", "good")[i % 3]})
        for i, text in enumerate(texts(items))
    }
    rows |= lines or {}
    (folder / "texts.jsonl").write_text("\n".join(rows.values()) + "\n", encoding="utf-8")
    lexicon = {"things": ["film", "goods", "x"], "praise": ["nice", "good"]}
    (folder / "groups.json").write_text(json.dumps(lexicon), encoding="utf-8")
    spec = {
        "name": "tiny",
        "model": str(model),
        "data": str(folder / "texts.jsonl"),
        "targets": ["predicted", "contrast:good-bad"],
        "groups": str(folder / "groups.json"),
        "shard_size": 8,
        **keys,
    }
    path = folder / "audit.yaml"
    path.write_text(json.dumps(spec), encoding="utf-8")  # JSON is YAML
    return path


def make_audit_with_authors(folder: Path) -> Path:
    """As `make_audit`, of two labels, with the item's author as a group beside the lexicon's."""
    spec = make_audit(
        folder,
        evaluation={"items": 0},
        groups={"lexicon": str(folder / "groups.json"), "column": "author", "check": 0},
        data={"source": str(folder / "texts.jsonl"), "meta": ["author"]},
    )
    rows = (
        {"text": text, "label": ("bad", "good")[i % 2], "author": ("woman", "man")[i % 3 == 0]}
        for i, text in enumerate(texts(40))
    )
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return spec
