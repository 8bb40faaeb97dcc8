"""Lexicons of entity groups: YAML, JSON, CSV and TSV, some gzipped; the first line says which."""

import json
from pathlib import Path

from fuzz.guard import promise
from transexplain.analysis.groups.lexicon import lexicon_file, load_lexicon
from transexplain.analysis.groups.mention_matching import Matcher
from transexplain.types.items import EntityGroup

_SUFFIXES = ("yaml", "json", "csv", "tsv", "yaml.gz", "csv.gz")
_TEXT = "Will and Anna met a Turkish nurse in the United States; he left."


def target(data: bytes) -> None:
    """Groups that are read are the same when they are written as JSON and read again."""
    kind, _, body = data.partition(b"\n")
    suffix = kind.decode("ascii", "replace")
    path = Path(f"lexicon.{suffix if suffix in _SUFFIXES else 'yaml'}")
    path.write_bytes(body)
    groups = load_lexicon(path)
    promise(groups, "no groups and no error")
    promise(len(lexicon_file(path).sha256) == 64, "no digest")
    for group in groups:
        promise(group.terms, "a group without terms")
        promise(set(group.entities) <= set(group.terms), "an entity of no term")
    again = Path("again.json")
    again.write_text(json.dumps({one.name: _written(one) for one in groups}), encoding="utf-8")
    promise(load_lexicon(again) == groups, "written as JSON and read again it is another")
    Matcher(groups).find(_TEXT)


def _written(group: EntityGroup) -> dict[str, object]:
    return {
        "source": group.source,
        "terms": [
            {
                "term": term,
                "entity": group.entities.get(term, term),
                "ambiguous": group.ambiguous.get(term, False),
            }
            for term in group.terms
        ],
    }
