"""What a plan says of items that are alike: clusters, near-duplicates, templates."""

from collections.abc import Iterator

from orchestrator.sections import DataSection
from transexplain.data.near_duplicates import MOST
from transexplain.data.reader import clustering_of
from transexplain.plans import DatasetRef


def cluster_warnings(section: DataSection, dataset: DatasetRef) -> Iterator[str]:
    """What somebody has to know of the clusters before the statistics are read."""
    found = clustering_of(dataset)
    if section.cluster is not None and found["clusters"] == 1:
        yield (
            f"all rows are one cluster by data.cluster ({section.cluster!r}): no interval can be "
            "had, so no groups are compared"
        )
    if repeating := found.get("repeating"):
        clusters = f"{found['repeated']:,} cluster{'s' * (found['repeated'] > 1)}"
        yield (
            f"{repeating:,} items are near-duplicates of others: {clusters}, which the statistics "
            "count as one item each (data.duplicates: off counts every item)"
        )
    if repeating := found.get("template"):
        yield (
            f"{repeating:,} of {dataset.rows:,} texts nearly repeat one text, as texts made from a "
            "template do; they are not made a cluster. Name the template's column in data.template"
        )
    looked = dataset.modality == "text" and section.duplicates == "auto"
    if looked and section.template is None and dataset.rows > MOST:
        yield (
            f"near-duplicates were not looked for: the data have {dataset.rows:,} rows, more than "
            f"{MOST:,}. Name what items share in data.cluster"
        )
    if single := found.get("single"):
        word = "template has" if single == 1 else "templates have"
        yield f"{single:,} of {found['templates']:,} {word} one row only, which no pair is made of"
