"""Loads classifiers with a head for the classes of the data, prepares them for training, and saves
them.
"""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from transexplain.errors import ConfigurationError, ModelLoadError
from transexplain.extras.training.examples import Examples, read_examples
from transexplain.extras.training.optimisation import (
    ClassifierObjective,
    parameter_groups,
    set_dropout,
)
from transexplain.extras.training.training_plans import FitPlan, TrainingPlan
from transexplain.files.atomic_write import atomic_folder
from transexplain.models import huggingface, timm_models
from transexplain.models.assemble import Origin, assemble_image
from transexplain.models.calling import torch_device
from transexplain.models.configs import read_config
from transexplain.models.hub import (
    check_keys,
    digests_of_files,
    digests_of_folder,
    fetch,
    folder_of,
    is_digested,
    mismatches,
    quiet,
    read_weights,
    weight_files,
)
from transexplain.models.load import load_model
from transexplain.models.loaded_model import LoadedModel


def load_for_training(
    source: str, classes: tuple[str, ...] | None, *, device: str, seed: int
) -> LoadedModel:
    """The classifier at `source` in float32, with a fresh head where `classes` are not its own.

    An encoder without a head (a language model, say) gets one. The head is drawn from the seed;
    every other weight has to be there. Raises ConfigurationError for classes that are no list of
    different names, ModelLoadError as `load_model`.
    """
    if classes is None:
        return load_model(source, device=device)
    if len(classes) < 2 or len(set(classes)) < len(classes):
        raise ConfigurationError(
            f"classes are {list(classes)}; give two or more different names, by index"
        )
    if source.startswith(timm_models.PREFIX):
        return _timm(source, classes, device, seed)
    folder = folder_of(source)[0]
    config = read_config(folder)
    if timm_models.is_timm_config(config) and "model_type" not in config:
        return _timm(source, classes, device, seed)
    return _transformers(folder, source, classes, device, seed)


def timm_recipe(source: str) -> tuple[timm_models.Recipe, list[Path]]:
    """The recipe of the timm model of `source`, and the files of its weights."""
    if not source.startswith(timm_models.PREFIX):
        folder, _ = folder_of(source)
        return timm_models.recipe_of(folder, read_config(folder)), list(weight_files(folder))
    name, checkpoint = timm_models.named_checkpoint(source)
    if checkpoint is None:
        remedy = f"name a file here: {timm_models.PREFIX}{name}?checkpoint=FILE.safetensors"
        folder, _ = fetch(timm_models.hub_name(name), remedy=remedy)
        return timm_models.recipe_of(folder, read_config(folder)), list(weight_files(folder))
    files = timm_models.checked_checkpoint(checkpoint)
    args = timm_models.head_size(name, read_weights(files))
    return timm_models.Recipe(architecture=name, args=args), files


def _transformers(
    folder: Path, source: str, classes: tuple[str, ...], device: str, seed: int
) -> LoadedModel:
    config = read_config(folder)
    modality = huggingface.modality_of(config, str(folder))
    own = {int(index): str(name) for index, name in (config.get("id2label") or {}).items()}
    if [own[index] for index in sorted(own)] == list(classes):
        return load_model(source, device=device)
    names = dict(enumerate(classes))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module, report = huggingface.read_module(
            folder,
            modality,
            torch.float32,
            num_labels=len(classes),
            id2label=names,
            label2id={name: index for index, name in names.items()},
        )
    base = getattr(module, "base_model", module)
    encoder = {id(tensor) for tensor in base.state_dict(keep_vars=True).values()}
    named = module.state_dict(keep_vars=True)
    inside = {name for name, tensor in named.items() if id(tensor) in encoder}
    # a pooler belongs to the head that an encoder was saved without
    missing = [name for name in report["missing_keys"] if name in inside and ".pooler." not in name]
    check_keys(
        missing,
        [],
        mismatches(mismatch for mismatch in report["mismatched_keys"] if mismatch[0] in inside),
        str(folder),
    )
    digest, digested = digests_of_folder(folder)
    place = torch_device(device)
    origin = Origin(source=source, digest=digest, device=str(place), files=digested)
    return huggingface.assembled(folder, module.to(place).eval(), modality, origin)


def _timm(source: str, classes: tuple[str, ...], device: str, seed: int) -> LoadedModel:
    recipe, files = timm_recipe(source)
    own = recipe.classes
    if own is not None and [str(name) for name in own] == list(classes):
        return load_model(source, device=device)
    recipe = replace(recipe, args={**recipe.args, "num_classes": len(classes)}, classes=classes)
    weights = read_weights(files)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = timm_models.built(recipe, weights, source)
    _fill_below_head(module, weights, source)
    place = torch_device(device)
    module = module.to(device=place, dtype=torch.float32).eval()
    digest, digested = digests_of_files({path.name: path for path in files})
    data = timm_models.data_config(module, recipe.data)
    return assemble_image(
        module,
        transform=timm_models.eval_transform(data),
        shape=data["input_size"],
        classes=classes,
        origin=Origin(source=source, digest=digest, device=str(place), files=digested),
    )


def _fill_below_head(module: nn.Module, weights: dict[str, torch.Tensor], where: str) -> None:
    """Copy all weights but the classifier's; ModelLoadError where one of them does not fit."""
    heads = getattr(module, "get_classifier", lambda: ())()
    heads = heads if isinstance(heads, tuple) else (heads,)
    fresh = {id(parameter) for head in heads for parameter in head.parameters()}
    if not fresh:
        raise ModelLoadError(
            f"{where}: {type(module).__name__} does not say which part is its classifier, so it "
            "cannot be given other classes"
        )
    own = module.state_dict(keep_vars=True)
    below = {name: tensor for name, tensor in own.items() if id(tensor) not in fresh}
    known = below.keys() & weights.keys()
    wrong = mismatches((name, weights[name].shape, below[name].shape) for name in known)
    check_keys(below.keys() - weights.keys(), weights.keys() - own.keys(), wrong, where)
    module.load_state_dict({name: weights[name] for name in below}, strict=False)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PreparedFit:
    """What a fit needs: the model in memory and its examples."""

    model: LoadedModel
    training: Examples
    validation: Examples

    def on(self, model: LoadedModel) -> "PreparedFit":
        """The same examples for another model with the same tokenizer or transform."""
        return PreparedFit(
            model=model,
            training=replace(self.training, model=model),
            validation=replace(self.validation, model=model),
        )


def prepare(plan: TrainingPlan) -> PreparedFit:
    """Load the model, read the examples and part them.

    Raises ConfigurationError for a model or data that does not fit the plan.
    """
    if plan.fit is None:
        model = load_model(plan.source, device=plan.device)
    else:
        model = load_for_training(plan.source, plan.classes, device=plan.device, seed=plan.seed)
        if plan.optimisation.dropout is not None:
            set_dropout(model.module, plan.optimisation.dropout)
    examples = read_examples(model, plan.dataset, labels=plan.labels, max_length=plan.max_length)
    if plan.validation is None:
        training, validation = examples.split(plan.share, plan.seed)
    else:
        training = examples
        validation = read_examples(
            model, plan.validation, labels=plan.labels, max_length=plan.max_length
        )
    if not validation and plan.fit is not None and plan.fit.patience is not None:
        raise ConfigurationError(
            "patience needs validation examples; give validation.source or validation.share, "
            "or set patience to null"
        )
    if not validation and plan.explainer is not None:
        raise ConfigurationError(
            "an explainer needs examples held out, to measure how near it comes to its teacher; "
            "give validation.source or validation.share"
        )
    return PreparedFit(model=model, training=training, validation=validation)


def objective_of(plan: TrainingPlan, fit: FitPlan, prepared: PreparedFit) -> ClassifierObjective:
    """The objective of a plan's classifier, with the steps at which its layers begin."""
    groups = parameter_groups(
        prepared.model,
        prepared.training.batch([0]).batch,
        stages=plan.stages,
        optimisation=plan.optimisation,
        epoch_steps=prepared.training.steps(fit.batch_size),
    )
    return ClassifierObjective(
        prepared.model,
        groups,
        prepared.validation,
        optimisation=plan.optimisation,
        batch_size=fit.batch_size,
    )


def save_model(model: LoadedModel, source: str, folder: Path) -> None:
    """Write weights, configuration and the tokenizer or processor files of `source`.

    `folder` is there whole or not at all; an earlier one is replaced. Raises ConfigurationError
    for a module that is neither of transformers nor of timm.
    """
    with atomic_folder(folder) as temporary:
        if hasattr(model.module, "save_pretrained") and hasattr(model.module, "config"):
            _save_transformers(model.module, folder_of(source)[0], temporary)
        else:
            _save_timm(model, source, temporary)


def _save_transformers(module: Any, source: Path, folder: Path) -> None:
    for path in sorted(source.iterdir()):
        if path.is_file() and is_digested(path.name) and path.name != "config.json":
            shutil.copyfile(path, folder / path.name)
    with quiet():
        module.save_pretrained(folder)


def _save_timm(model: LoadedModel, source: str, folder: Path) -> None:
    recipe, _ = timm_recipe(source)
    data = timm_models.data_config(model.module, recipe.data)
    args = {**recipe.args, "num_classes": len(model.classes)}
    config = {
        "architecture": recipe.architecture,
        "timm_args": args,
        **{name: list(data[name]) for name in ("input_size", "mean", "std")},
        "interpolation": data["interpolation"],
        "crop_pct": data["crop_pct"],
        "classes": list(model.classes),
    }
    try:
        text = json.dumps(config, indent=1)
    except TypeError as error:
        raise ConfigurationError(f"{source}: its timm_args are no JSON: {error}") from error
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    weights = {
        name: value.detach().cpu().contiguous().clone()
        for name, value in model.module.state_dict().items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
