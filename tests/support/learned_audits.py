"""Audits by an explainer that has learned nothing, for the tests of method `learned`."""

from pathlib import Path
from typing import Any

from explainer_samples import write_explainer
from tiny_audit import make_audit, texts

from transexplain.models.load import load_model


def explainer_for(folder: Path, name: str = "trained", **facts: Any) -> Path:
    """An explainer, in a folder of its own, of the model that `make_audit` writes in `folder`."""
    if not (folder / "model").exists():
        make_audit(folder)
    place = folder / name
    place.mkdir()
    return write_explainer(load_model(str(folder / "model")), place, texts(4), **facts)


def learned(explainer: Path | str, **params: Any) -> dict[str, Any]:
    """The section `method` of an audit by this explainer."""
    return {"name": "learned", "params": {"explainer": str(explainer), **params}}


def mixed(explainer: Path | str, share: float = 0.5, **keys: Any) -> dict[str, Any]:
    """The section `explain` of an audit by this explainer, with an exact sample."""
    params = {"explainer": str(explainer)}
    return {"method": "learned", "params": params, "exact_sample": share, **keys}
