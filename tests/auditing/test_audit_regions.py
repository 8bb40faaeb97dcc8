"""Regions of pictures hidden: in which ways, of which pictures, and the new predictions."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from gallery import prepare
from local_audits import aggregate_of, audited_in
from PIL import Image
from plain_records import new_plan
from region_pictures import BLUE, RED, make_region_audit

from orchestrator.gate.policy import Policy
from orchestrator.gate.policy_verdict import judge
from orchestrator.plan import PreparedAudit
from transexplain.analysis.groups.answers import answers_of
from transexplain.analysis.groups.hidden_regions import HiddenRegion
from transexplain.auditing.region_hiding import (
    MOST,
    WAYS,
    RegionCheck,
    blurred,
    inpainted,
    region_pixels,
)
from transexplain.data.shard_reader import read_shard
from transexplain.explaining import Explained, Request, explain_items
from transexplain.methods import bound
from transexplain.reports.sections.group_answers import _why_no_regions
from transexplain.reports.summary import summarise
from transexplain.types.items import Annotation, EntityGroup, Item
from transexplain.types.plans import CheckPlan, Matching, ModelRef, Shard

LEFT = Annotation(group=RED, entity="", box=(0.0, 0.0, 0.5, 1.0))


def observed(prepared: PreparedAudit, cuts: tuple[int, ...] = ()) -> list[HiddenRegion]:
    return sorted(aggregate_of(prepared, cuts=cuts).checked.regions)


def explained(prepared: PreparedAudit, *annotations: Annotation) -> Explained:
    [item] = read_shard(prepared.plan.dataset, Shard(index=0, start=0, stop=1))
    assert isinstance(item, Item)
    request = Request.from_plan(prepared.plan)
    [done] = explain_items(prepared.model, [replace(item, annotations=annotations)], request)
    return done


def noted(prepared: PreparedAudit, *annotations: Annotation) -> list[Item]:
    regions = RegionCheck(prepared.plan)
    regions.consider(explained(prepared, *annotations))
    return list(regions.items)


@pytest.mark.exhaustive
def test_changes_are_those_of_the_model_itself(tmp_path: Path) -> None:
    """Every picture made and answered again by hand."""
    prepared = prepare(make_region_audit(tmp_path, slice="at"), tmp_path)
    plan, model = prepared.plan, prepared.model
    found = observed(prepared)
    assert len(found) == 32, "a third of 24 pictures has two regions, the others one"

    def log_odds(pixels: np.ndarray) -> tuple[float, ...]:
        item = Item(id="x", index=0, content=Image.fromarray(pixels))
        batch = model.collate(model.encode([item], long_text="truncate", max_length=None))
        one = bound(plan.method)(model, batch, lambda rows: [[] for _ in rows])
        return tuple(float(answer.log_odds(one.logits[0])) for answer in answers_of(plan))

    items = list(read_shard(plan.dataset, Shard(index=0, start=0, stop=24)))
    for item in items:
        assert isinstance(item, Item)
        pixels = np.asarray(item.content)
        own = [one for one in found if one.document == item.id]
        assert [one.place for one in own] == list(range(len(item.annotations)))
        for one in own:
            region = item.annotations[one.place]
            assert (one.group, one.entity) == (region.group, item.id)
            assert (one.cluster, one.slice) == (item.cluster, item.meta["at"])
            assert one.log_odds == pytest.approx(log_odds(pixels), abs=1e-9)
            left, top, right, bottom = (round(24 * edge) for edge in region.box or ())
            inside = np.zeros((24, 24), dtype=bool)
            inside[top:bottom, left:right] = True
            mean = pixels.copy()
            mean[inside] = np.rint(pixels.reshape(-1, 3).mean(axis=0)).astype(np.uint8)
            soft = pixels.copy()
            soft[inside] = cv2.GaussianBlur(pixels, (0, 0), 4.0)[inside]
            painted = cv2.inpaint(pixels, inside.astype(np.uint8), 3, cv2.INPAINT_TELEA)
            by_hand = [log_odds(one) for one in (mean, soft, painted)]
            assert np.array(one.hidden) == pytest.approx(np.array(by_hand), abs=1e-9)
            assert one.without == tuple("yes" if way[0] > 0 else "no" for way in by_hand)


@pytest.mark.exhaustive
def test_a_model_that_sees_the_region_has_an_effect_and_another_none(tmp_path: Path) -> None:
    found = {}
    for weight in (6.0, 0.0):
        folder = tmp_path / str(weight)
        folder.mkdir()
        keys = make_region_audit(folder, weight=weight, items=30)
        with audited_in(folder, **keys) as (db, run):
            summary = summarise(db, run)
            _, gate = judge(db, run, Policy(max_swap_logit=0.1)).checks
            [row], [verdict] = summary.groups.counterfactuals, summary.groups.verdicts
            found[weight] = row, verdict, gate, summary
    row, verdict, gate, _ = found[6.0]
    assert (row.kind, row.group, row.reference) == ("region", RED, BLUE)
    assert (row.documents, row.clusters, row.entities, row.other_entities) == (30, 15, 20, 20)
    assert row.measure("logit").interval[0] > 0.3
    assert row.noise is not None and row.noise > 0.05, "a blur leaves some of the colour"
    assert row.changed_across > (row.changed_within or 0.0)
    assert verdict.mention == "changes"
    assert verdict.mention_reasons[0].startswith("hiding its regions")
    assert not gate.passed and "regions, colour/red" in gate.text
    row, verdict, gate, _ = found[0.0]
    assert (row.effect, row.measure("logit").interval, row.noise) == (0.0, (0.0, 0.0), 0.0)
    assert row.measure("logit").state == "inside"
    assert (row.changed_across, row.changed_within) == (0.0, 0.0)
    assert verdict.mention != "changes" and gate.passed


def test_any_cut_into_shards_hides_the_same(tmp_path: Path) -> None:
    prepared = prepare(make_region_audit(tmp_path, check=8), tmp_path)
    assert prepared.plan.check is not None and 0 < prepared.plan.check.share < 1
    whole, parts = observed(prepared), observed(prepared, (0, 5, 6, 17, 24))
    assert 0 < len(whole) < 32
    for one, other in zip(whole, parts, strict=True):
        assert np.array(other.hidden) == pytest.approx(np.array(one.hidden), abs=1e-9)
        assert other.log_odds == pytest.approx(one.log_odds, abs=1e-9)
        assert replace(other, hidden=one.hidden, log_odds=one.log_odds) == one


def test_cutting_a_part_out_changes_no_pixel() -> None:
    picture = np.random.default_rng(2).integers(0, 256, (300, 260, 3)).astype(np.uint8)
    inside = region_pixels(replace(LEFT, box=(0.4, 0.5, 0.5, 0.6)), 300, 260)
    soft = cv2.GaussianBlur(picture, (0, 0), 0.5 * float(np.sqrt(inside.sum())))
    np.testing.assert_array_equal(blurred(picture, inside)[inside], soft[inside])
    painted = cv2.inpaint(picture, inside.astype(np.uint8), 3, cv2.INPAINT_TELEA)
    np.testing.assert_array_equal(inpainted(picture, inside), painted)


def test_masks_of_any_size_mark_the_same_as_boxes() -> None:
    box = region_pixels(LEFT, 10, 20)
    for shape in ((1, 2), (10, 20), (400, 800)):
        mask = np.zeros(shape, dtype=bool)
        mask[:, : shape[1] // 2] = True
        region = Annotation(group=RED, entity="", mask=mask)
        np.testing.assert_array_equal(region_pixels(region, 10, 20), box)


def test_regions_that_cannot_be_hidden_are_left_out(tmp_path: Path) -> None:
    prepared = prepare(make_region_audit(tmp_path, items=6), tmp_path)
    empty = Annotation(group=RED, entity="", mask=np.zeros((24, 24), dtype=bool))
    whole = Annotation(group=RED, entity="", mask=np.ones((3, 3), dtype=bool))
    thin = replace(LEFT, box=(0.5, 0.0, 0.501, 1.0))
    stranger = replace(LEFT, group="nobody")
    assert not noted(prepared, empty, whole, thin, stranger, replace(LEFT, box=None))
    assert len(noted(prepared, LEFT, empty)) == len(WAYS)
    many = [replace(LEFT, box=(0.0, 0.0, 0.1 * n, 0.5)) for n in range(1, 10)] * 2
    assert len(noted(prepared, *many)) == MOST * len(WAYS)
    alone = replace(prepared.plan, groups=prepared.plan.groups[:1], reference=None)
    assert not noted(replace(prepared, plan=alone), LEFT), "nothing to compare it with"


def test_a_failure_costs_its_region_alone(tmp_path: Path) -> None:
    prepared = prepare(make_region_audit(tmp_path, items=6), tmp_path)
    regions, done = RegionCheck(prepared.plan), explained(prepared, LEFT, replace(LEFT, group=BLUE))
    regions.consider(done)
    ends = [done] * 6
    assert [one.group for one in regions.observations(iter(ends))] == [RED, BLUE]
    ends[1] = replace(done, outcome=None, attributions=())
    assert [one.group for one in regions.observations(iter(ends))] == [BLUE]


def test_why_no_region_was_hidden_is_reported() -> None:
    model = ModelRef(source="m", modality="image")
    groups = (EntityGroup(name="at/a", terms=()), EntityGroup(name="at/b", terms=()))
    marked = new_plan(model=model, groups=groups)
    whole = replace(marked, matching=Matching(column="at"))
    checked = replace(marked, check=CheckPlan(share=1.0))
    cases = ((whole, "data.spans"), (marked, "groups.check is 0"), (checked, "of two groups"))
    for plan, says in cases:
        assert says in _why_no_regions(plan)
