"""Texts of counterfactuals: an item is led to, a template is named and leads nowhere."""

from collections.abc import Iterator

import pytest
from report_samples import ANNS, BOBS, Visible, biased_run
from starlette.testclient import TestClient

from orchestrator.serve.links import link
from transexplain.analysis.groups.counterfactuals import Observation
from transexplain.analysis.groups.shard_aggregate import ControlResults
from transexplain.reports.sql_results import write
from transexplain.store.database import Database


def from_templates() -> list[Observation]:
    """An Ann and a Bob in each of 30 templates, as items that came with these names."""
    return [
        Observation(
            document=f"template {number} <b>",
            group=group,
            entity=names[number % 6],
            template=True,
            own=True,
            positions=6,
            predicted=("negative", "positive")[worth > 0],
            log_odds=(worth + 0.01 * number,),
        )
        for number in range(30)
        for group, names, worth in (("anns", ANNS, 1.0), ("bobs", BOBS, 0.0))
    ]


@pytest.fixture
def templates(db: Database) -> str:
    """A run whose counterfactuals are pairs of items that were made from templates."""
    found = biased_run(db, checked=ControlResults(observations=from_templates()))
    assert write(db, found)
    return found


def links(client: TestClient, address: str) -> Iterator[str]:
    """Where the links of a page lead, its own places left out."""
    answer = client.get(address)
    assert answer.status_code == 200, f"{address}: {answer.status_code}"
    for tag, attrs in Visible(answer.text).tags:
        if tag == "a" and not (attrs.get("href") or "#").startswith("#"):
            yield attrs["href"]


def test_a_text_made_from_a_template_is_named_and_leads_nowhere(
    client: TestClient, templates: str
) -> None:
    address = link("runs", templates, "groups", "anns", "entities", ANNS[0])
    widest = client.get(f"{address}.json").json()["swaps"]["widest"]
    assert widest and not any(one["is_item"] for one in widest)
    page = client.get(address).text
    assert "template 0 &lt;b&gt;" in page
    assert not [one for one in links(client, address) if "template" in one]


def test_a_text_with_swapped_names_leads_to_its_item(client: TestClient, run_id: str) -> None:
    address = link("runs", run_id, "groups", "anns", "entities", ANNS[0])
    widest = client.get(f"{address}.json").json()["swaps"]["widest"]
    found = list(links(client, address))
    for one in widest:
        assert one["is_item"] and link("runs", run_id, "items", one["document"]) in found
