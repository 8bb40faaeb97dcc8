"""What a device did with its time: busy, waiting for a stage of the host, or without work."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

BUSY = "busy"
#: what a device waits for on the host: the model, items that are read and encoded, what its own
#: thread does between two batches, and the commit of the shard before
STAGES = ("loading", "reading", "finishing", "commit")
NO_WORK = "no_work"  #: no shard of the run could be claimed


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceTime:
    """The seconds of one worker's device, or of several, by what they were for."""

    seconds: Mapping[str, float]  #: `BUSY`, `STAGES` and `NO_WORK`; what is missing is 0
    worker: str | None = None  #: None: of all

    @property
    def waited(self) -> float | None:
        """Share of the time with work in which the device waited for the host; None: no time."""
        waited = sum(self.seconds.get(stage, 0.0) for stage in STAGES)
        whole = waited + self.seconds.get(BUSY, 0.0)
        return waited / whole if whole else None

    @property
    def stages(self) -> dict[str, float]:
        """The same by stage, the largest first; those that took nothing are left out."""
        whole = sum(self.seconds.get(stage, 0.0) for stage in (BUSY, *STAGES))
        shares = {stage: self.seconds.get(stage, 0.0) / whole for stage in STAGES if whole}
        return dict(sorted(((n, s) for n, s in shares.items() if s), key=lambda share: -share[1]))

    @property
    def document(self) -> dict[str, Any]:
        """As JSON values: `seconds` by what for, rounded to microseconds, and `waited`."""
        seconds = {name: round(self.seconds.get(name, 0.0), 6) for name in (BUSY, *STAGES, NO_WORK)}
        share = None if self.waited is None else round(self.waited, 4)
        named = {} if self.worker is None else {"worker": self.worker}
        return {**named, "seconds": seconds, "waited": share}


def together(times: Iterable[DeviceTime]) -> DeviceTime:
    """The time of several devices as one."""
    found = dict.fromkeys((BUSY, *STAGES, NO_WORK), 0.0)
    for time in times:
        for name, seconds in time.seconds.items():
            found[name] = found.get(name, 0.0) + seconds
    return DeviceTime(seconds=found)
