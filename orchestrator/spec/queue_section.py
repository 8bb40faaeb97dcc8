"""The section `queue`: whose shards workers take first, and how many at once."""

from pydantic import Field

from orchestrator.spec.spec_document import Section
from transexplain.types.queue_place import QueuePlace


class QueueSection(Section):
    """The place of the run among others that want workers."""

    priority: int = Field(
        default=0, ge=-1000, le=1000, description="among runs that wait for workers; higher first"
    )
    share: float = Field(
        default=1.0,
        gt=0,
        allow_inf_nan=False,
        description="weight among runs of the same priority, by which workers are divided",
    )
    most_workers: int | None = Field(
        default=None, ge=1, description="shards in hand at once; default: no cap"
    )

    @property
    def place(self) -> QueuePlace:
        """As the store keeps it."""
        return QueuePlace(priority=self.priority, share=self.share, most_workers=self.most_workers)
