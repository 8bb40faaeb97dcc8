"""Views for people who ask by SQL: a row for each token, word or patch, and for each verdict.

They are made from the arrays of `attribution` when they are read, and hold nothing of their own.
"""

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Connection, text

from transexplain.store.result_tables import group_verdict
from transexplain.store.schema import attribution, item

_OF = {
    column.name: str(column.comment)
    for column in (
        *(item.c.run_id, item.c.idx, item.c.item_id, attribution.c.method, attribution.c.target),
        *(attribution.c.rank, attribution.c.class_name),
    )
}
_EXPLAINED = "a.run_id, a.idx, i.item_id, a.method, a.target, a.rank, a.class_name"
_ROWS = "FROM attribution AS a JOIN item AS i ON i.run_id = a.run_id AND i.idx = a.idx"

_TOKENS = {
    "postgresql": f"""
SELECT {_EXPLAINED}, p.place - 1 AS position,
       coalesce(CAST(a.pieces AS json) ->> CAST(p.place - 1 AS text),
                substr(i.text, p.start_at + 1, p.length)) AS token,
       p.start_at, p.length, nullif(p.word, -1) AS word_number,
       coalesce(p.place - 1 = ANY (a.special), false) AS special, p.relevance, i.text
{_ROWS}
CROSS JOIN LATERAL unnest(a.relevance, a.starts, a.lengths, a.words)
     WITH ORDINALITY AS p (relevance, start_at, length, word, place)
WHERE a.grid_rows IS NULL""",
    "sqlite": f"""
SELECT {_EXPLAINED}, p.key AS position,
       coalesce(json_extract(a.pieces, '$."' || p.key || '"'),
                substr(i.text, json_extract(a.starts, '$[' || p.key || ']') + 1,
                       json_extract(a.lengths, '$[' || p.key || ']'))) AS token,
       json_extract(a.starts, '$[' || p.key || ']') AS start_at,
       json_extract(a.lengths, '$[' || p.key || ']') AS length,
       nullif(json_extract(a.words, '$[' || p.key || ']'), -1) AS word_number,
       EXISTS (SELECT 1 FROM json_each(a.special) AS s WHERE s.value = p.key) AS special,
       p.value AS relevance, i.text
{_ROWS}
JOIN json_each(a.relevance) AS p
WHERE a.grid_rows IS NULL""",
}
_PARTS = (
    "run_id, idx, item_id, method, target, rank, class_name, position, token, start_at, length, "
    "word_number, special, relevance"
)
_PATCHES = {
    "postgresql": f"""
SELECT {_EXPLAINED}, (p.place - 1) / a.grid_columns AS grid_row,
       (p.place - 1) % a.grid_columns AS grid_column, p.relevance
{_ROWS}
CROSS JOIN LATERAL unnest(a.relevance) WITH ORDINALITY AS p (relevance, place)
WHERE a.grid_rows IS NOT NULL""",
    "sqlite": f"""
SELECT {_EXPLAINED}, p.key / a.grid_columns AS grid_row, p.key % a.grid_columns AS grid_column,
       p.value AS relevance
{_ROWS}
JOIN json_each(a.relevance) AS p
WHERE a.grid_rows IS NOT NULL""",
}
_WORDS = """
SELECT run_id, idx, item_id, method, target, rank, class_name, word_number,
       coalesce(substr(max(text), min(start_at) + 1, max(start_at + length) - min(start_at)),
                max(token)) AS word,
       count(*) AS tokens, sum(CAST(relevance AS double precision)) AS relevance
FROM ({tokens}) AS every
WHERE word_number IS NOT NULL
GROUP BY run_id, idx, item_id, method, target, rank, class_name, word_number"""
_DECIDED = (
    *("group_name", "reference", "state", "mention", "mention_measure", "mention_value"),
    *("mention_value_low", "mention_value_high", "mention_advice", "outcome"),
    *("outcome_prediction", "outcome_measure", "outcome_value", "outcome_value_low"),
    *("outcome_value_high", "outcome_advice"),
)
_VERDICTS = f"""
SELECT r.id, r.name, r.created, {", ".join(f"v.{name}" for name in _DECIDED)}
FROM group_verdict AS v JOIN run AS r ON r.id = v.run_id"""


class View(NamedTuple):
    """A view, with its query for each kind of database."""

    about: str
    columns: Mapping[str, str]  #: name -> what it holds
    queries: Mapping[str, str]  #: dialect -> SQL
    texts: bool = False  #: whether it shows what items say


_RELEVANCE = {"relevance": "signed, in the attribution's `unit`"}
VIEWS: Mapping[str, View] = {
    "token": View(
        "The relevance of every token of a text, special tokens among them.",
        {
            **_OF,
            "position": "in what the model read, from 0",
            "token": "as the text spells it; as the tokenizer does where no text is kept",
            "start_at": "its first character in the text",
            "length": "its characters",
            "word_number": "of the word that it is part of, from 0; NULL: of none",
            "special": "whether it stands for no part of the text, as `[CLS]` does",
            **_RELEVANCE,
        },
        {kind: f"SELECT {_PARTS} FROM ({query}) AS every" for kind, query in _TOKENS.items()},
        texts=True,
    ),
    "word": View(
        "The relevance of every word of a text: the sum over its tokens.",
        {
            **_OF,
            "word_number": "in the text, from 0",
            "word": "as the text spells it",
            "tokens": "that it has",
            **_RELEVANCE,
        },
        {kind: _WORDS.format(tokens=query) for kind, query in _TOKENS.items()},
        texts=True,
    ),
    "heatmap": View(
        "The relevance of every patch of a picture.",
        {
            **_OF,
            "grid_row": "of the patch, from the top, from 0",
            "grid_column": "of the patch, from the left, from 0",
            **_RELEVANCE,
        },
        _PATCHES,
    ),
    "verdict": View(
        "The verdict on each group of each run, with what decided it.",
        {
            "run_id": "of the run",
            "name": "of the audit",
            "created": "when the run was",
            **{name: str(group_verdict.c[name].comment) for name in _DECIDED},
        },
        dict.fromkeys(_TOKENS, _VERDICTS),
    ),
}


def create_views(connection: Connection) -> None:
    """Create all views; on PostgreSQL with a comment for each column."""
    quoted = connection.dialect.identifier_preparer.quote_identifier
    kind = connection.dialect.name
    for name, view in VIEWS.items():
        columns = ", ".join(map(quoted, view.columns))
        connection.execute(text(f"CREATE VIEW {name} ({columns}) AS {view.queries[kind]}"))
        if kind == "postgresql":
            comments = {f"VIEW {name}": view.about}
            comments |= {f"COLUMN {name}.{quoted(c)}": about for c, about in view.columns.items()}
            for what, about in comments.items():
                literal = about.replace("'", "''")
                connection.execute(text(f"COMMENT ON {what} IS '{literal}'"))


def drop_views(connection: Connection) -> None:
    """Drop all views, which keep tables from being dropped."""
    for name in VIEWS:
        connection.execute(text(f"DROP VIEW {name}"))
