"""The models a process holds, loaded once each and checked against the plan's digest."""

from dataclasses import replace
from typing import TYPE_CHECKING

from transexplain.errors import ModelLoadError
from transexplain.plans import ModelRef

if TYPE_CHECKING:
    from transexplain.models.base import LoadedModel


class ModelCache:
    """At most one model in memory: the last one that was asked for."""

    def __init__(self, device: str | None = None) -> None:
        self._device = device
        self._key: ModelRef | None = None
        self._model: LoadedModel | None = None

    def put(self, ref: ModelRef, model: "LoadedModel") -> None:
        """Keep a model that is loaded already."""
        self._key, self._model = self._placed(ref), model

    def get(self, ref: ModelRef) -> "LoadedModel":
        """The model of a plan, on this process's device.

        Raises:
            ModelLoadError: it cannot be loaded, or is not the one that the plan was made with.
        """
        key = self._placed(ref)
        if self._model is not None and self._key == key:
            return self._model
        from transexplain.models.load import load_model

        self._model = None  # free the old one before the new one takes its memory
        model = load_model(key.source, dtype=key.dtype, device=key.device)
        if ref.digest and model.ref.digest != ref.digest:
            raise ModelLoadError(
                f"model {ref.source!r} has changed since the run was planned "
                f"(digest {model.ref.digest[:12]}, planned {ref.digest[:12]}); submit a new run"
            )
        self.put(ref, model)
        return model

    def _placed(self, ref: ModelRef) -> ModelRef:
        return replace(ref, device=self._device) if self._device else ref
