"""Names of queues: one per modality and class of device, `<queue>.<modality>.<cpu|gpu>`.

A plan names both, and a worker listens where it can serve.
"""

from collections.abc import Iterable
from typing import get_args

from transexplain.settings import Settings
from transexplain.types.plans import AuditPlan, DeviceClass, Modality, device_class

MODALITIES: tuple[Modality, ...] = get_args(Modality)


def queue_of(settings: Settings, plan: AuditPlan) -> str:
    """The queue that messages for shards of this plan go to."""
    return queue_name(settings.queue, plan.model.modality, plan.model.device)


def queue_name(first: str, modality: str, device: str) -> str:
    """The queue for a modality and a torch device; `first` is `Settings.queue`."""
    return f"{first}.{modality}.{device_class(device)}"


def queues_for(
    settings: Settings, kind: DeviceClass = "gpu", modalities: Iterable[Modality] = MODALITIES
) -> list[str]:
    """The queues that a worker serves: with an accelerator both classes, else the CPU's only.

    As it stands by default: every queue there is.
    """
    classes = ("gpu", "cpu") if kind == "gpu" else ("cpu",)
    return [
        f"{settings.queue}.{modality}.{device}" for device in classes for modality in modalities
    ]
