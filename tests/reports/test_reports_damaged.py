"""A damaged row costs a report the items of its shard, and the report says so."""

import pytest
from evaluation_samples import plan_of, scores, stored
from report_samples import Visible, explained_text, stored_run
from sqlalchemy import Text, type_coerce, update

from transexplain.errors import DamagedRowError
from transexplain.reports.evaluation.evaluation_tables import tabulate
from transexplain.reports.report_formats import render_html
from transexplain.reports.summary import redacted, summarise
from transexplain.store import ranked_items, shards
from transexplain.store.database import Database
from transexplain.store.schema import attribution, item
from transexplain.types.scores import MetricSpec


def damage(db: Database, run_id: str, shard: int) -> None:
    """Give a row of a shard what cannot be read."""
    with db.begin() as connection:
        for table, column in ((item, "meta"), (attribution, "pieces")):
            where = (table.c.run_id == run_id, table.c.shard == shard)
            broken = {column: type_coerce("{", Text)}
            connection.execute(update(table).where(*where).values(broken))


@pytest.mark.exhaustive
def test_the_headline_names_it_and_the_rest_stands(db: Database) -> None:
    texts = [("good " * (n + 1), "negative") for n in range(21)]
    run_id = stored_run(db, [explained_text(n, *one) for n, one in enumerate(texts)])
    whole = summarise(db, run_id, gallery=30)
    damage(db, run_id, 1)
    found = summarise(db, run_id, gallery=30)
    lost = {f"row-{n}" for n in range(7, 14)}
    assert {one.item_id for one in whole.gallery.items} >= lost
    assert {one.item_id for one in found.gallery.items} == {
        one.item_id for one in whole.gallery.items if one.item_id not in lost
    }
    line = found.headline[0]
    assert line.kind == "problem"
    assert "1 shard (7 items)" in line.text
    assert f"transexplain resume {run_id}" in line.text
    assert found.counts == whole.counts and found.confusion == whole.confusion
    assert found.classes == whole.classes
    assert found.conservation == whole.conservation, "its logits and ledgers can be read"
    page = Visible(render_html(found))
    assert "Damaged results" in page.text and "shard 1 (rows 7 to 13)" in page.text
    assert "Damaged results" not in Visible(render_html(whole)).text
    assert redacted(found).headline[0] == line and not redacted(found).whole
    with pytest.raises(DamagedRowError, match="a row of shard 1"):
        ranked_items.strongest(db, run_id, 99)
    assert shards.redrive(db, run_id) == 1


def test_scores_that_can_be_read_are_tabulated(db: Database) -> None:
    plan = plan_of(["lrp", "random"], MetricSpec(name="sparsity"))
    given = scores("sparsity", {"lrp": [0.5] * 6, "random": [0.1] * 6})
    run_id = stored(db, plan, given, 6)
    assert tabulate(db, run_id).whole
    damage(db, run_id, 0)
    found = tabulate(db, run_id)
    assert "1 shard (6 items)" in found.headline[0].text and not found.whole
