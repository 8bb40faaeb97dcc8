"""The section `payload`: how relevance is stored, and the folder that gets it as Parquet files."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from orchestrator.spec.spec_document import Section, absolute_path
from transexplain import remote_files
from transexplain.store.sink_files import RUN
from transexplain.types.plans import Keep, Sink


class PayloadSection(Section):
    """What becomes of explained items."""

    shorthand: ClassVar[str] = "form"

    form: Literal["float16", "float32"] = Field(
        default="float16", description="numbers of stored relevance"
    )
    sink: str | None = Field(
        default=None,
        description="folder or URL that gets a Parquet file for each shard; {run} in it stands for "
        "the run's id",
    )
    keep: Keep = Field(
        default="both",
        description="both: explained items lie in the store, too; sink: in the files alone",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.sink is None:
            if self.keep == "sink":
                raise ValueError("keep: sink needs the sink: a folder or URL with {run} in it")
            return self
        if self.sink.count(RUN) != 1 or "{" in self.sink.replace(RUN, ""):
            raise ValueError(
                f"the sink {self.sink!r} must hold {RUN} once, and no other braces: two runs would "
                f"write the same files. Write for example s3://BUCKET/run-{RUN}/"
            )
        if any(one in self.sink for one in "*?["):
            raise ValueError(f"the sink {self.sink!r} is a pattern; name one folder")
        return self

    def absolute(self) -> Self:
        """The section with a folder that is found from every other."""
        if self.sink is None or remote_files.is_url(self.sink):
            return self
        return self.model_copy(update={"sink": absolute_path(self.sink)})

    def planned(self) -> Sink | None:
        """As the plan holds it; None: results lie in the store alone.

        Raises ConfigurationError: a URL that cannot be used, or a package for it is missing.
        """
        if self.sink is None:
            return None
        url = self.absolute().sink or ""
        if remote_files.is_url(url):
            remote_files.check_url(url.rstrip("/"))
        return Sink(url=url, keep=self.keep)
