"""Entities of a GLiNER model in a folder, for whatever types are requested.

It was run with gliner 0.2.29 and a model of random weights, not with trained ones; the tests use an
object with the documented interface (`from_pretrained`, `predict_entities`, `inference`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transexplain.analysis.groups.entity_recogniser import Recogniser, folder_digest
from transexplain.errors import ConfigurationError
from transexplain.local_paths import local_path
from transexplain.parsing import read_json

#: files that are pickles, which run code when they are read
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


def open_gliner(where: str, types: tuple[str, ...]) -> Recogniser:
    """Open the model; raises ConfigurationError where GLiNER, the folder or the types are missing.

    Weights are read from safetensors alone, and nothing is fetched.
    """
    folder = _folder(where)
    if not types:
        raise ConfigurationError(
            "groups.recogniser: a GLiNER model finds what it is asked for; name it: "
            "groups.entity_types: [person, country]"
        )
    try:
        import gliner
    except ImportError:
        raise ConfigurationError(
            "groups.recogniser: gliner is not installed; `pip install gliner`, on every worker too"
        ) from None

    try:
        model = gliner.GLiNER.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # noqa: BLE001 - its parts may raise anything
        raise ConfigurationError(
            f"groups.recogniser: the GLiNER model {where} cannot be loaded "
            f"({type(error).__name__}: {error})"
        ) from None
    labels = list(types)

    def found(answers: Sequence[Mapping[str, Any]]) -> list[tuple[int, int, str]]:
        return [(int(one["start"]), int(one["end"]), str(one["label"])) for one in answers]

    return Recogniser(
        find=lambda text: found(model.predict_entities(text, labels)),
        find_together=lambda texts: map(found, model.inference(list(texts), labels)),
        types=types,
        name=f"GLiNER {getattr(gliner, '__version__', '?')}, {folder.name}",
        digest=folder_digest(folder),
    )


def _folder(where: str) -> Path:
    """The folder of a model with safetensors alone; raises ConfigurationError."""
    folder = local_path(where)
    if not (folder / "gliner_config.json").is_file():
        raise ConfigurationError(
            f"groups.recogniser: {where} is no folder of a GLiNER model: it has no "
            "gliner_config.json. Nothing is downloaded here: save one with "
            "`GLiNER.save_pretrained(FOLDER, safe_serialization=True)`, for every worker"
        )
    if not (folder / "model.safetensors").is_file() or any(
        one for pattern in _PICKLES for one in folder.glob(pattern)
    ):
        raise ConfigurationError(
            f"groups.recogniser: {where} must have its weights in model.safetensors and no "
            f"pickles ({', '.join(_PICKLES)}); save it with safe_serialization=True"
        )
    if not _config(folder / "gliner_config.json").get("encoder_config"):
        raise ConfigurationError(
            f"groups.recogniser: the gliner_config.json of {where} has no encoder_config, which "
            "would be fetched; save the model once more with `save_pretrained` of a current gliner"
        )
    return folder


def _config(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"groups.recogniser: {path} cannot be read: {error}") from None
    return found if isinstance(found, dict) else {}
