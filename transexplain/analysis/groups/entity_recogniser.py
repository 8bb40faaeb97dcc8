"""Entities that a named-entity recogniser finds, in the place of those of a lexicon or with them.

A recogniser is named `spacy:PACKAGE_OR_FOLDER`, `gliner:FOLDER` or `package.module:function`. No
model is ever downloaded: what is not there is an error with the remedy.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from transexplain.data.source_files import file_digest
from transexplain.errors import ConfigurationError, ItemError, did_you_mean
from transexplain.files.paths import local_path
from transexplain.registry import Registry, require
from transexplain.text.parsing import read_json
from transexplain.types.items import EntityGroup
from transexplain.types.plans import RecogniserPlan

if TYPE_CHECKING:
    from spacy.tokens import Doc


#: kind -> `module:function` that opens what the rest of a recogniser's name says
RECOGNISERS = Registry(
    "entity recogniser",
    {
        "spacy": "transexplain.analysis.groups.entity_recogniser:open_spacy",
        "gliner": "transexplain.analysis.groups.entity_recogniser:open_gliner",
    },
)
#: the family of groups of types whose names have no slash
FAMILY = "entity"
#: environment variable: names of modules and packages, by commas, whose functions may recognise
MODULES = "TRANSEXPLAIN_RECOGNISER_MODULES"


class Recognised(NamedTuple):
    """One entity that was found in a text."""

    start: int  #: character offset into the text
    end: int
    type: str  #: as the recogniser names it: PERSON, GPE, ...
    entity: str = ""  #: what it is called; "": as the text spells it, in lower case

    @property
    def group(self) -> str:
        """The group of its type."""
        return group_of(self.type)


#: what a recogniser answers for one text
Answers = Iterable[tuple[int, int, str] | tuple[int, int, str, str]]
#: kind of the failure of an item whose text a recogniser fails on
FAILED = "recogniser-error"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recogniser:
    """An opened recogniser."""

    find: Callable[[str], Answers]
    types: tuple[str, ...]  #: that it can find; empty: whatever is requested, or unknown
    name: str  #: software and model with their versions, for a reader
    digest: str = ""  #: sha256 over the files of its model; "": it has none
    #: `find` for N texts together, in their order; None: one after the other
    find_together: Callable[[Sequence[str]], Iterable[Answers]] | None = None

    def entities(self, text: str) -> list[Recognised]:
        """Return what it finds in a text, in order, each with its name.

        Raises ItemError `recogniser-error` where it fails, or an answer is no place in the text
        with a type.
        """
        try:
            return self._checked(text, list(self.find(text)))
        except ItemError:
            raise
        except Exception as error:
            raise ItemError(
                FAILED, f"the recogniser {self.name} failed with {type(error).__name__}: {error}"
            ) from error

    def entities_of(self, texts: Sequence[str]) -> list[list[Recognised] | ItemError]:
        """`entities` of every text, found together; a text it fails on has its error alone."""
        if self.find_together is not None and len(texts) > 1:
            try:
                answers = [list(answer) for answer in self.find_together(texts)]
                return [
                    self._checked(text, answer) for text, answer in zip(texts, answers, strict=True)
                ]
            except Exception:  # noqa: BLE001 - one by one it shows which text it was
                pass
        return [self._alone(text) for text in texts]

    def _alone(self, text: str) -> list[Recognised] | ItemError:
        try:
            return self.entities(text)
        except ItemError as error:
            return error

    def _checked(self, text: str, answers: Sequence[Sequence[Any]]) -> list[Recognised]:
        entities = []
        for answer in answers:
            entity = Recognised(*answer) if 3 <= len(answer) <= 4 else None
            if entity is None or not _fits(entity, text):
                raise ItemError(
                    FAILED,
                    f"the recogniser {self.name} answered with what is no (start, end, type) or "
                    "(start, end, type, entity) within the text",
                )
            surface = " ".join(text[entity.start : entity.end].split())
            if surface:
                entities.append(entity._replace(entity=entity.entity or surface.lower()))
        return sorted(entities)


def _fits(entity: Recognised, text: str) -> bool:
    # bool is an int in Python, but no position in a text
    places = type(entity.start) is int and type(entity.end) is int
    named = isinstance(entity.type, str) and entity.type != "" and isinstance(entity.entity, str)
    return places and named and 0 <= entity.start < entity.end <= len(text)


def group_of(type_: str) -> str:
    """The group of an entity type: `entity/PERSON`; a type with a slash is a group's name."""
    return type_ if "/" in type_ else f"{FAMILY}/{type_}"


def absolute_recogniser(source: str) -> str:
    """The name of a recogniser with the absolute path of its folder, where it is one."""
    kind, _, rest = source.partition(":")
    folder = local_path(rest)
    if kind in RECOGNISERS and rest and folder.is_dir():
        return f"{kind}:{folder.absolute()}"
    return source


def planned_recogniser(source: str, types: Sequence[str] | None) -> RecogniserPlan:
    """The plan of a recogniser, opened to see that it is there; `types`: None for all of its own.

    Raises ConfigurationError where there is no such recogniser, or it has no such type.
    """
    source = absolute_recogniser(source)
    stamp = _stamp(source)
    opened = _opened(source, tuple(types or ()), stamp)
    if types is None and not opened.types:
        raise ConfigurationError(
            f"groups.recogniser {source} does not say which types of entities it finds; name "
            "them: groups.entity_types: [PERSON, GPE]"
        )
    names = opened.types if types is None else tuple(dict.fromkeys(types))
    for name in names:
        if opened.types and name not in opened.types:
            raise ConfigurationError(
                f"groups.entity_types names {name!r}, which {opened.name} does not find"
                f"{did_you_mean(name, opened.types) or ';'} it finds {', '.join(opened.types)}"
            )
    _OPENED[source, names, stamp] = opened
    return RecogniserPlan(source=source, name=opened.name, digest=opened.digest, types=names)


#: size and time of change of every file of a recogniser's folder; empty: it has none
_Stamp = tuple[tuple[str, int, int], ...]
#: recognisers by source, requested types and stamp: opening one takes seconds
_OPENED: dict[tuple[str, tuple[str, ...], _Stamp], Recogniser] = {}


def _opened(source: str, types: tuple[str, ...], stamp: _Stamp) -> Recogniser:
    """`open_recogniser`, once in a process for as long as its files stay as they are."""
    key = (source, types, stamp)
    if key not in _OPENED:
        _OPENED[key] = open_recogniser(source, types)
    return _OPENED[key]


def _stamp(source: str) -> _Stamp:
    kind, _, rest = source.partition(":")
    if kind not in RECOGNISERS or not rest:
        return ()
    try:
        files = sorted(path for path in Path(rest).rglob("*") if path.is_file())
        stats = [(path.as_posix(), path.stat()) for path in files]
    except OSError:
        return ()
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


def recognised_groups(plan: RecogniserPlan) -> list[EntityGroup]:
    """One group without terms for every type of the plan."""
    source = plan.source_of_groups
    return [EntityGroup(name=group_of(type_), terms=(), source=source) for type_ in plan.types]


@cache
def recogniser_of(plan: RecogniserPlan) -> Recogniser:
    """The recogniser of a plan, opened once in a process.

    Raises ConfigurationError where it is missing, or is of other bytes than those of the plan.
    """
    recogniser = _opened(plan.source, plan.types, _stamp(plan.source))
    if recogniser.digest != plan.digest:
        raise ConfigurationError(
            f"groups.recogniser: {plan.source} is not the one of the plan (sha256 "
            f"{recogniser.digest[:12]}, planned {plan.digest[:12]}); put that one back, or plan "
            f"the run again"
        )
    return recogniser


def open_recogniser(source: str, types: tuple[str, ...] = ()) -> Recogniser:
    """Open what `source` names; `types`: those that are requested.

    Raises ConfigurationError.
    """
    kind, mark, rest = source.partition(":")
    if not mark or not kind or not rest:
        raise ConfigurationError(
            f"groups.recogniser is {source!r}; write spacy:PACKAGE_OR_FOLDER, gliner:FOLDER, or "
            "package.module:function of a function of your own"
        )
    if kind in RECOGNISERS:
        opened: Recogniser = RECOGNISERS.load(kind)(rest, types)
        return opened
    return _function(source)


def folder_digest(folder: Path) -> str:
    """Sha256 over the names and bytes of all files of a folder; raises ConfigurationError."""
    try:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        lines = [
            f"{path.relative_to(folder).as_posix()} {file_digest(path)}\n"
            for path in files
            if "__pycache__" not in path.parts
        ]
    except OSError as error:
        raise ConfigurationError(f"groups.recogniser: {folder} cannot be read: {error}") from None
    return hashlib.sha256("".join(lines).encode("utf-8", "backslashreplace")).hexdigest()


_MARK = "__transexplain_entity_recogniser__"
_Function = Callable[[str], Answers]


def entity_recogniser(
    *, types: Sequence[str] = (), version: str = ""
) -> Callable[[_Function], _Function]:
    """Mark a function as a recogniser: it takes a text and returns (start, end, type[, entity]).

    Args:
        types: of entities that it finds.
        version: of what it does; a plan records it, and a worker with another one refuses the run.
    """

    def marked(function: _Function) -> _Function:
        setattr(function, _MARK, (tuple(types), version))
        return function

    return marked


def _function(source: str) -> Recogniser:
    """A marked function of a module that the operator allows: to import one is to run it."""
    from transexplain.text.privacy import allowed_module

    module_name, _, attribute = source.partition(":")
    module = allowed_module(module_name, "groups.recogniser", MODULES)
    function = getattr(module, attribute, None)
    mark = getattr(function, _MARK, None)
    if not callable(function) or mark is None:
        raise ConfigurationError(
            f"groups.recogniser: {module_name} has no function {attribute!r} that is marked; put "
            "@entity_recogniser(types=[...], version=...) of "
            "transexplain.analysis.groups.entity_recogniser above it"
        )
    types, version = mark
    digest = hashlib.sha256(version.encode()).hexdigest() if version else ""
    return Recogniser(find=function, types=types, name=f"{source} {version}".strip(), digest=digest)


#: files that are pickles, which run code when they are read
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


def open_gliner(where: str, types: tuple[str, ...]) -> Recogniser:
    """Open the model; raises ConfigurationError where GLiNER, the folder or the types are missing.

    Weights are read from safetensors alone, and nothing is fetched.
    """
    folder = _gliner_folder(where)
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
        return [
            (int(answer["start"]), int(answer["end"]), str(answer["label"])) for answer in answers
        ]

    return Recogniser(
        find=lambda text: found(model.predict_entities(text, labels)),
        find_together=lambda texts: map(found, model.inference(list(texts), labels)),
        types=types,
        name=f"GLiNER {getattr(gliner, '__version__', '?')}, {folder.name}",
        digest=folder_digest(folder),
    )


def _gliner_folder(where: str) -> Path:
    """The folder of a model with safetensors alone; raises ConfigurationError."""
    folder = local_path(where)
    if not (folder / "gliner_config.json").is_file():
        raise ConfigurationError(
            f"groups.recogniser: {where} is no folder of a GLiNER model: it has no "
            "gliner_config.json. Nothing is downloaded here: save one with "
            "`GLiNER.save_pretrained(FOLDER, safe_serialization=True)`, for every worker"
        )
    if not (folder / "model.safetensors").is_file() or any(
        file for pattern in _PICKLES for file in folder.glob(pattern)
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
        config = read_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"groups.recogniser: {path} cannot be read: {error}") from None
    return config if isinstance(config, dict) else {}


def open_spacy(where: str, _types: tuple[str, ...]) -> Recogniser:
    """Open the pipeline; an entity's id (of an EntityRuler's pattern) is its name.

    A package has to be one that declares itself a spaCy pipeline, so that no other is imported.
    Raises ConfigurationError where spaCy or the pipeline is missing, or it finds no entities.
    """
    require("spacy", "ner")
    import spacy

    folder = _spacy_folder(where)
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
        return [(ent.start_char, ent.end_char, ent.label_, ent.ent_id_) for ent in document.ents]

    meta = language.meta
    name = f"spaCy {spacy.__version__}, {meta['lang']}_{meta['name']} {meta['version']}"
    return Recogniser(
        find=lambda text: found(language(text)),
        find_together=lambda texts: map(found, language.pipe(texts)),
        types=types,
        name=name,
        digest=folder_digest(folder),
    )


def _spacy_folder(where: str) -> Path:
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
