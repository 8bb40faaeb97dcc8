"""The models a process holds, loaded once each and checked against the plan's digest."""

import gc
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from transexplain.errors import ModelLoadError
from transexplain.types.plans import SPREAD, ModelRef

if TYPE_CHECKING:
    from transexplain.models.loaded_model import LoadedModel

#: share of the device's (or host's) memory that models may take; batches need the rest
SHARE = 0.5
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


class _Key(NamedTuple):
    """The key of a model in the cache: its bytes, wherever they are stored."""

    content: str
    dtype: str
    device: str


class ModelCache:
    """Models by content, number type and device; the longest unused go when memory is short.

    `memory` is the budget in bytes for weights and buffers on one device; None: half of that
    device's memory (of the host's for the CPU, a container's limit respected), divided by the
    `neighbours` that share it. The model requested last is kept whatever its size.
    """

    def __init__(
        self, device: str | None = None, *, memory: int | None = None, neighbours: int = 1
    ) -> None:
        self._device = device
        self._memory = memory
        self._neighbours = neighbours
        self._held: OrderedDict[_Key, tuple[LoadedModel, int]] = OrderedDict()
        self._loading = threading.Lock()  # two threads would load the same model twice

    def __len__(self) -> int:
        return len(self._held)

    def device_of(self, ref: ModelRef) -> str:
        """The device of a plan's model in this process."""
        return self._device or ref.device

    def holds(self, ref: ModelRef) -> bool:
        """Return whether the model of a plan is loaded."""
        return self._key(ref) in self._held

    def put(self, ref: ModelRef, model: "LoadedModel") -> None:
        """Keep a model that is loaded already; others are dropped where memory is short."""
        key = self._key(ref)
        self._held[key] = (model, size_of(model))
        self._held.move_to_end(key)
        budget = self._budget(key.device)
        for other in [held for held in self._held if held.device == key.device and held != key]:
            if sum(size for held, (_, size) in self._held.items() if held.device == key.device) > (
                budget
            ):
                del self._held[other]
                _free()

    def get(self, ref: ModelRef) -> "LoadedModel":
        """The model of a plan, on this process's device.

        Raises:
            ModelLoadError: it cannot be loaded, or is not the one that the plan was made with.
        """
        with self._loading:
            key = self._key(ref)
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key][0]
            model = self._load(ref, key)
            if ref.digest and model.ref.digest != ref.digest:
                raise ModelLoadError(
                    f"model {ref.source!r} has changed since the run was planned "
                    f"(digest {model.ref.digest[:12]}, planned {ref.digest[:12]}); submit a new run"
                )
            self.put(ref, model)
            return model

    def clear(self) -> None:
        """Let all models go: another process needs the memory."""
        self._held.clear()
        _free()

    def _load(self, ref: ModelRef, key: _Key) -> "LoadedModel":
        from torch import OutOfMemoryError

        from transexplain.models.load import load_model

        try:
            return load_model(ref.source, dtype=ref.dtype, device=key.device)
        except (MemoryError, OutOfMemoryError):
            if not self._held:
                raise
        # outside the handler, whose traceback keeps the half-loaded model alive
        self.clear()
        return load_model(ref.source, dtype=ref.dtype, device=key.device)

    def _key(self, ref: ModelRef) -> _Key:
        return _Key(ref.digest or ref.source, ref.dtype, self.device_of(ref))

    def _budget(self, device: str) -> float:
        if self._memory is not None:
            return self._memory
        return SHARE * _memory_of(device) / self._neighbours


def size_of(model: "LoadedModel") -> int:
    """Bytes of the parameters and buffers of a model; tied ones count once."""
    tensors = {
        id(tensor): tensor for tensor in (*model.module.parameters(), *model.module.buffers())
    }
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def _memory_of(device: str) -> int:
    """Bytes of a device's own memory, else of the host's or the container's."""
    import torch

    if device == SPREAD or device.startswith("cuda"):
        all_cards = range(torch.cuda.device_count())
        places = all_cards if device == SPREAD else (device,)
        return sum(int(torch.cuda.get_device_properties(place).total_memory) for place in places)
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _CGROUP_LIMIT.read_text().strip() if _CGROUP_LIMIT.is_file() else "max"
    return min(host, int(limit)) if limit.isdecimal() else host


def _free() -> None:
    """Give what was let go back to the device: modules hold cycles, allocators hold caches."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
