"""Entities of a spaCy pipeline: a folder that `Language.to_disk` wrote, or an installed package."""

from pathlib import Path
from typing import TYPE_CHECKING

from transexplain.analysis.groups.entity_recogniser import Recogniser, folder_digest
from transexplain.errors import ConfigurationError
from transexplain.local_paths import local_path
from transexplain.registry import require

if TYPE_CHECKING:
    from spacy.tokens import Doc


def open_spacy(where: str, _types: tuple[str, ...]) -> Recogniser:
    """Open the pipeline; an entity's id (of an EntityRuler's pattern) is its name.

    A package has to be one that declares itself a spaCy pipeline, so that no other is imported.
    Raises ConfigurationError where spaCy or the pipeline is missing, or it finds no entities.
    """
    require("spacy", "ner")
    import spacy

    folder = _folder(where)
    try:
        language = spacy.load(folder)
    except Exception as error:  # noqa: BLE001 - its parts may raise anything
        raise ConfigurationError(
            f"groups.recogniser: the spaCy pipeline {where} cannot be loaded "
            f"({type(error).__name__}: {error}); was it made by another version of spaCy?"
        ) from None
    finding = [
        name for name in language.pipe_names if "doc.ents" in language.get_pipe_meta(name).assigns
    ]
    labels = (label for name in finding for label in language.pipe_labels.get(name, ()))
    types = tuple(dict.fromkeys(labels))
    if not types:
        raise ConfigurationError(
            f"groups.recogniser: the spaCy pipeline {where} finds no entities: of its parts "
            f"({', '.join(language.pipe_names) or 'none'}) none has labels of entities"
        )

    def found(document: "Doc") -> list[tuple[int, int, str, str]]:
        return [(one.start_char, one.end_char, one.label_, one.ent_id_) for one in document.ents]

    meta = language.meta
    name = f"spaCy {spacy.__version__}, {meta['lang']}_{meta['name']} {meta['version']}"
    return Recogniser(
        find=lambda text: found(language(text)),
        find_together=lambda texts: map(found, language.pipe(texts)),
        types=types,
        name=name,
        digest=folder_digest(folder),
    )


def _folder(where: str) -> Path:
    """The folder of a pipeline or of its package; raises ConfigurationError."""
    import spacy.util

    folder = local_path(where)
    if folder.is_dir():
        if not (folder / "config.cfg").is_file():
            raise ConfigurationError(
                f"groups.recogniser: {where} is no spaCy pipeline: it has no config.cfg; name the "
                "folder that `nlp.to_disk` wrote"
            )
        return folder
    installed = sorted(spacy.util.get_installed_models())
    if where not in installed:
        raise ConfigurationError(
            f"groups.recogniser: there is no folder {where}, and no spaCy pipeline of this name is "
            f"installed (installed: {', '.join(installed) or 'none'}). Nothing is downloaded here: "
            f"`python -m spacy download {where}` installs one, on every worker too"
        )
    package = Path(spacy.util.get_package_path(where))
    # the pipeline lies in a folder with its version, within the package
    return next((path.parent for path in sorted(package.glob("*/config.cfg"))), package)
