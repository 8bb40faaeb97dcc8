"""The ways in: one module each, whose `target` reads the bytes as the software would."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module

from fuzz.guard import Limits


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """One way in, and what an input of it may use."""

    module: str  #: under `fuzz.ways`
    limits: Limits = field(default_factory=Limits)
    largest: int = 1 << 12  #: bytes of an input; small ones are quick

    @property
    def target(self) -> Callable[[bytes], None]:
        """The function under fuzz; importing it imports what it tests."""
        found: Callable[[bytes], None] = import_module(f"fuzz.ways.{self.module}").target
        return found


#: of databases and brokers
_DRIVERS = ("amqp", "librabbitmq", "psycopg", "psycopg_binary", "redis", "sqlite3")
#: a model is built, and a picture may have 64 million pixels
_WEIGHTY = Limits(seconds=20, megabytes=600, modules=("annotationlib",))
#: YAML is read up to a million characters, and a gzipped lexicon may hold so many
_YAML = Limits(seconds=30)
#: an encoding is detected where a table is not in UTF-8
_TABLES = Limits(modules=("charset_normalizer",))
_PICTURES = Limits(seconds=10, megabytes=1200)
#: a sheet may have a million rows
_WORKBOOKS = Limits(seconds=60, megabytes=1000)
#: by name; corpora and findings lie in folders of these names
WAYS = {
    "annotations": Way(module="annotations", limits=_TABLES),
    "attributions": Way(module="attributions", limits=Limits(modules=("pandas", "pydantic"))),
    "crons": Way(module="crons", largest=256),
    "documents": Way(module="documents", limits=_YAML, largest=1 << 10),
    "forms": Way(module="forms", largest=1 << 11),
    "lexicons": Way(module="lexicons", limits=_YAML, largest=1 << 11),
    "messages": Way(module="messages", largest=1 << 17),
    "models": Way(module="models", largest=1 << 14, limits=_WEIGHTY),
    "parquet": Way(module="parquet", largest=1 << 13, limits=Limits(modules=("pandas",))),
    "pictures": Way(module="pictures", limits=_PICTURES),
    "stored": Way(module="stored", limits=Limits(modules=("pydantic",))),
    "tables": Way(module="tables", largest=1 << 11, limits=_TABLES),
    "tars": Way(module="tars", largest=1 << 13),
    "urls": Way(module="urls", limits=Limits(modules=_DRIVERS), largest=1 << 11),
    "workbooks": Way(module="workbooks", limits=_WORKBOOKS, largest=1 << 13),
}
