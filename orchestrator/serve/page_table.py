"""The table of pages, each with its address, its template and the function that makes it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from orchestrator.serve import group_pages, item_pages, run_pages
from orchestrator.serve.drawn_pages import ALPHAS, PALETTES
from orchestrator.serve.page_request import PageContent, PageRequest
from transexplain.store.ranked_items import ORDERS

_ROW = "row of the dataset to go on from"


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A page and its JSON."""

    name: str  #: of its template, without the ending
    path: str
    make: Callable[[PageRequest], PageContent]
    query: Mapping[str, str] = field(default_factory=dict)  #: parameter -> what it is
    also: tuple[str, ...] = ()  #: other paths that lead here

    @property
    def summary(self) -> str:
        """The content of the page, in a sentence."""
        return (self.make.__doc__ or "").split("\n", 1)[0]


PAGES: tuple[Page, ...] = (
    Page(
        name="runs",
        path="/runs",
        also=("/",),
        make=run_pages.all_runs,
        query={
            "name": "part of the audit's name",
            "model": "part of the model's name",
            "state": "running, done or cancelled",
            "before": "moment and id of a run: those older than it",
        },
    ),
    Page(name="run", path="/runs/{run}", make=run_pages.one_run),
    Page(
        name="live_report",
        path="/runs/{run}/report",
        make=run_pages.live_report,
        query={"section": "name of a section; nothing: all of them"},
    ),
    Page(name="group", path="/runs/{run}/groups/{group}", make=group_pages.one_group),
    Page(
        name="entity",
        path="/runs/{run}/groups/{group}/entities/{entity}",
        make=group_pages.one_entity,
        query={"start": _ROW},
    ),
    Page(name="class", path="/runs/{run}/classes/{class}", make=group_pages.one_class),
    Page(name="clusters", path="/runs/{run}/classes/{class}/clusters", make=run_pages.clusters),
    Page(
        name="items",
        path="/runs/{run}/items",
        make=item_pages.items,
        query={
            "text": "part of an item's text, in any case",
            "word": "a whole word of its text, in any case",
            "sort": f"order, one of {', '.join(ORDERS)}; nothing: as in the data",
            "after": "value and row of an item: those that are ranked after it",
            "entity": "that it mentions",
            "group": "that it mentions",
            "label": "class, or as the dataset spells it",
            "predicted": "class",
            "start": _ROW,
        },
    ),
    Page(
        name="item",
        path="/runs/{run}/items/{item}",
        make=item_pages.one_item,
        query={
            "palette": f"colours of the page, one of {', '.join(PALETTES)}",
            "alpha": f"share of the picture itself, one of {', '.join(map(str, ALPHAS))} per cent",
        },
    ),
    Page(
        name="failures",
        path="/runs/{run}/failures",
        make=run_pages.failures,
        query={"start": _ROW},
    ),
    Page(name="audit", path="/audits/{audit}", make=run_pages.one_audit),
    Page(
        name="compare",
        path="/compare",
        make=run_pages.two_runs,
        query={"a": "id of a run", "b": "id of a later run"},
    ),
    Page(name="fleet", path="/fleet", make=run_pages.fleet),
    Page(name="schedules", path="/schedules", make=run_pages.schedules),
)
