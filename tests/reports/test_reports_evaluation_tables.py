"""Tables of scores: order, best, counts, curves; and the sentences made of them."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_samples import plan_of, scores, stored
from report_samples import Visible

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics import metric_facts
from transexplain.evaluating.metrics.metric_table import Scored
from transexplain.reports import EVALUATION_REPORTS, REPORTS, charts
from transexplain.reports.charts import Series, line_drawing, stroke
from transexplain.reports.evaluation import EvaluationSummary, evaluation_tables, tabulate
from transexplain.reports.evaluation.evaluation_tables import table
from transexplain.reports.evaluation.score_statistics import (
    FEWEST,
    ScoreColumn,
    ScoreTable,
    adjust,
    differences,
    gather,
    intervals,
    minus,
    wholes,
)
from transexplain.reports.phrasing import change, decimals, span, value
from transexplain.reports.summary import summarise
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.types.scores import (
    MetricScore,
    MetricSpec,
)

HIGHER, LOWER = MetricSpec(name="comprehensiveness"), MetricSpec(name="sufficiency")


def table_of(spec: MetricSpec, values: dict[str, Any], labels: Sequence[str] = ()) -> ScoreTable:
    """The table of these values of the plan's methods, which are all that have values."""
    return table_from(spec, labels or list(values), scores(spec.name, values))


def table_from(spec: MetricSpec, labels: Sequence[str], found: list[MetricScore]) -> ScoreTable:
    return table(gather(found, ()), plan_of(labels, spec), "predicted", spec)


def test_best_first_random_and_oracle_last_with_means_by_hand() -> None:
    values = {
        "random": [0.9, 0.9],
        "oracle": [0.8, 1.0],
        "poor": [0.0, 0.1],
        "fair": [0.3, 0.5],
        "good": [0.5, 0.6],
    }
    one = table_of(HIGHER, values, ["random", "poor", "fair", "good"])
    assert [row.method for row in one.rows] == ["good", "fair", "poor", "random", "oracle"]
    assert [row.rank for row in one.rows] == [1, 2, 3, None, None]
    assert [row.kind for row in one.rows] == ["method"] * 3 + ["random", "oracle"]
    assert [row.mean for row in one.rows] == pytest.approx([0.55, 0.4, 0.05, 0.9, 0.9])
    assert one.best == "good"  # random lies higher and is no method
    differences = [row.difference.mean for row in one.rows if row.difference]
    assert differences == pytest.approx([-0.15, -0.5, 0.35, 0.35])
    assert one.rows[0].difference is None


def test_lower_is_better_turns_the_order_and_ties_share_a_rank() -> None:
    one = table_of(LOWER, {"a": [3.0], "b": [1.0], "c": [1.0]})
    assert [(row.method, row.rank) for row in one.rows] == [("b", 1), ("c", 1), ("a", 3)]
    assert one.best == "b"
    # where nothing is better the plan orders, and nothing is compared
    one = table_of(MetricSpec(name="sparsity"), {"b": [0.1], "a": [0.9]})
    assert [(row.method, row.rank) for row in one.rows] == [("b", None), ("a", None)]
    assert one.best is None and not any(row.difference for row in one.rows)


def test_what_could_not_be_measured_is_counted_by_reason() -> None:
    values = {"a": [0.5, "one position", "one position", "it broke"], "b": ["no ledger"] * 4}
    first, last = table_of(HIGHER, values).rows
    assert (first.items, first.missing) == (1, {"one position": 2, "it broke": 1})
    assert (last.method, last.items, last.mean, last.rank) == ("b", 0, None, None)
    assert last.missing == {"no ledger": 4}
    odd = table_of(HIGHER, {"a": [float("nan")]})
    assert odd.rows[0].missing == {"no finite value": 1}


def test_a_lead_on_few_items_makes_no_best_and_differences_are_on_common_items() -> None:
    one = table_of(HIGHER, {"all": [0.0, 0.4, 0.4, 0.4], "few": [1.0, None, None, None]})
    assert one.best == "all"
    few = next(row for row in one.rows if row.method == "few")
    assert few.items == 1 and few.difference is not None
    assert (few.difference.items, few.difference.mean, few.difference.p) == (1, 1.0, None)


def test_curves_are_means_of_the_measured_items_at_the_shares() -> None:
    spec = MetricSpec(name="hiding", params={"shares": (0.1, 0.5)})
    found = scores("hiding", {"a": [0.5, 0.3, "no position of its own"]})
    found = [
        replace(one, curve=curve)
        for one, curve in zip(found, [(0.8, 0.2), (0.4, 0.2), ()], strict=True)
    ]
    one = table_from(spec, "a", found)
    assert one.x == (0.1, 0.5)
    assert one.rows[0].curve == pytest.approx((0.6, 0.2))
    assert one.baseline == "auto"
    uneven = [found[0], replace(found[1], curve=(1.0,))]
    assert table_from(spec, "a", uneven).rows[0].curve == ()


def share(details: object) -> Scored:
    """A value of all items together: counted among all."""
    given = list(details)  # type: ignore[call-overload]
    counted = sum(one["counted"] for one in given)
    return Scored(value=counted / sum(one["of"] for one in given), curve=(0.0, float(counted)))


def test_a_metric_of_all_items_together(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = replace(metric_facts("runtime"), corpus=f"{__name__}:share", better="higher")
    monkeypatch.setattr(evaluation_tables, "metric_facts", lambda _name: facts)
    spec, labels = MetricSpec(name="runtime"), {"a": [1, 0, 1, 1, 1, 1], "b": [0, 1, 0, 0, 0, 0]}
    found = [
        replace(score, value=None, detail={"counted": score.value, "of": 1})
        for score in scores("runtime", labels)
    ]
    failed = replace(found[0], item_id="row-6", detail={}, reason="the model failed")
    one = table(gather([*found, failed], ["runtime"]), plan_of("ab", spec), "predicted", spec)
    best, other = one.rows
    assert (best.method, best.mean, best.items) == ("a", 5 / 6, 6)
    assert (best.missing, best.curve) == ({"the model failed": 1}, (0.0, 5.0))
    assert other.difference is not None and other.difference.interval is not None
    assert (other.difference.mean, other.difference.p) == (pytest.approx(1 / 6 - 5 / 6), None)


def test_the_sentences_say_who_leads_and_whether_it_is_luck(db: Database) -> None:
    step = [0.01 * number for number in range(10)]
    values = {
        "clear": [0.9 + one for one in step],
        "next": [0.5 + one for one in step],
        "random": [0.2 + one for one in step],
    }
    close = {**values, "next": [0.9 + one * (-1) ** n for n, one in enumerate(step)]}
    lost = {**values, "random": [1.0 + one for one in step]}
    plan = plan_of(["clear", "next", "random"], HIGHER)
    kinds = []
    for given in (values, close, lost):
        found = scores("comprehensiveness", given)
        lines = tabulate(db, stored(db, plan, found, 10)).headline
        kinds.append(lines[1].kind)
        if given is values:  # two of the 2^10 changes of sign are as far from 0, for both rivals
            assert "clear is best (0.945" in lines[1].text and "(p = 0.002)" in lines[1].text
    assert kinds == ["good", "fact", "problem"]


def test_a_run_without_scores_is_distinguished_from_one_that_measures_nothing(db: Database) -> None:
    assert tabulate(db, stored(db, plan_of(["a"], HIGHER), [], 1)).tables == ()
    run_id = stored(db, plan_of(["a"], HIGHER), [], 1, evaluation=None, task="audit")
    with pytest.raises(ConfigurationError, match="measured no explanations"):
        tabulate(db, run_id)


# ---- intervals and paired comparisons, against numbers worked out by hand -----------------------


NONE = float("nan")


def test_the_paired_difference_and_its_exact_p() -> None:
    # differences 1, 2, 3, 4: of the 16 changes of sign only the one of all and the one of none
    # are as far from 0, so p = 2 / 16; two of them at 1, 1, 1, -1: sums +-4 twice, +-2 eight
    # times, 0 six times: |sum| >= 2 in 10 of 16
    base = [0.0, 0.0, 0.0, 0.0]
    values = np.array([base, [1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, -1.0]])
    none, sure, unsure = differences(values, 0, seed=0)
    assert none is None
    assert (sure.items, sure.mean, sure.p) == (4, 2.5, pytest.approx(0.125))
    assert (unsure.mean, unsure.p) == (0.5, pytest.approx(10 / 16))
    # Benjamini-Hochberg of two: the smaller is doubled, the larger stays
    assert sure.p_adjusted == pytest.approx(0.25)
    assert unsure.p_adjusted == pytest.approx(10 / 16)
    assert sure.interval is None  # fewer items than an interval is made of


def test_only_items_that_both_have_are_compared() -> None:
    values = np.array([[1.0, 2.0, NONE, 4.0], [NONE, 1.0, 9.0, 1.0], [NONE, NONE, 5.0, NONE]])
    _, found, apart = differences(values, 0, seed=0)
    assert (found.items, found.mean) == (2, -2.0)
    assert apart is None


def test_adjusted_p_leaves_out_what_was_not_tested() -> None:
    # of three p-values: 0.01 x 3 / 1, 0.02 x 3 / 2, 0.5 x 3 / 3
    assert adjust([0.02, None, 0.01, 0.5]) == pytest.approx([0.03, None, 0.03, 0.5])
    assert adjust([None]) == [None]


def test_constant_and_single_values_neither_fail_nor_warn() -> None:
    values = np.array([[1.0] * 8, [1.0] * 8, [2.0] + [NONE] * 7])
    assert intervals(values, seed=0) == [(1.0, 1.0), (1.0, 1.0), None]
    _, same, single = differences(values, 0, seed=0)
    assert (same.mean, same.p, same.interval) == (0.0, 1.0, (0.0, 0.0))
    assert (single.mean, single.p, single.p_adjusted, single.interval) == (1.0, None, None, None)
    assert intervals(np.full((1, 0), NONE), seed=0) == [None]


def test_the_interval_of_zeros_and_ones_is_that_of_the_binomial() -> None:
    # 100 items, half of them 1: the mean of a resample is Binomial(100, 1/2) / 100, whose 2.5 and
    # 97.5 % points are 0.40 and 0.60
    values = np.array([[0.0, 1.0] * 50])
    [interval] = intervals(values, seed=1)
    assert interval == pytest.approx((0.40, 0.60), abs=0.011)
    assert intervals(values, seed=1) == [interval]
    values = np.arange(float(FEWEST))[None]
    assert intervals(values, seed=0)[0] is not None
    assert intervals(values[:, 1:], seed=0) == [None]


def column(counted: list[int], of: list[int]) -> ScoreColumn:
    pairs = enumerate(zip(counted, of, strict=True))
    return ScoreColumn(details=[(number, {"counted": a, "of": b}) for number, (a, b) in pairs])


def test_a_corpus_value_is_of_all_items_and_its_interval_of_halves() -> None:
    one = column([1, 1, 1, 1, 1, 1], [1, 2, 3, 4, 5, 5])
    other = column([2, 2, 2, 2, 2, 2], [4, 4, 4, 4, 4, 4])
    first, second = wholes([one, other], share, 6, seed=0)
    assert first.scored.value == pytest.approx(6 / 20)
    assert first.scored.curve == (0.0, 6.0)
    low, high = first.interval or (0.0, 0.0)
    assert low < 0.3 < high
    assert low + high == pytest.approx(2 * 6 / 20)
    assert second.interval == (0.5, 0.5)
    found = minus(first, second)
    assert (found.items, found.mean, found.p) == (6, pytest.approx(-0.2), None)
    assert found.interval == pytest.approx((low - 0.5, high - 0.5))


def test_halves_give_the_standard_error_of_a_mean() -> None:
    (found,) = wholes([column([0, 1] * 50, [1] * 100)], share, 100, seed=0)
    low, high = found.interval or (0.0, 0.0)
    # 0.5 and 1.96 standard errors: sqrt(0.25 * 100 / 99 / 100)
    assert (low + high) / 2 == pytest.approx(0.5)
    assert (high - low) / 2 == pytest.approx(1.96 * 0.05025, rel=0.15)


def test_corpus_values_of_other_or_too_few_items_are_not_compared() -> None:
    whole, part = column([1] * 6, [2] * 6), column([1] * 3, [2] * 3)
    first, second = wholes([whole, part], share, 6, seed=0)
    assert second.interval is None
    assert minus(second, first) is None
    (nothing,) = wholes([ScoreColumn()], share, 6, seed=0)
    assert (nothing.scored.value, nothing.interval) == (None, None)


# ---- the forms of an evaluation's report --------------------------------------------------------


HOSTILE = '=HYPERLINK("x")|<img src=x onerror=alert(1)>'
SPECS = (MetricSpec(name="hiding", params={"shares": (0.1, 0.5), "baseline": "unk"}),)


@pytest.fixture
def summary(db: Database) -> EvaluationSummary:
    values = {
        "lrp": [0.1, 0.2, 0.15, 0.12, 0.18, 0.11],
        HOSTILE: [0.3, 0.2, "<b>broke</b>", 0.4, 0.5, 0.3],
        "-1": [0.5] * 6,
        "random": [0.7, 0.6, 0.8, 0.7, 0.6, 0.7],
    }
    found = [
        replace(one, curve=() if one.reason else (one.value, one.value))
        for one in scores("hiding", values)
    ]
    return tabulate(db, stored(db, plan_of(list(values), *SPECS), found, 6))


def rendered(form: str, summary: EvaluationSummary) -> str:
    return EVALUATION_REPORTS.load(form)(summary)


def test_the_page_is_complete_in_itself_and_escapes_every_name(summary: EvaluationSummary) -> None:
    page = rendered("html", summary)
    seen = Visible(page)
    assert not {tag for tag, _ in seen.tags} & {"img", "b", "link", "iframe"}
    assert not any(name.startswith("on") for _, given in seen.tags for name in given)
    policy = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; "
    sources = " ".join(one.source for one in charts.scripts())
    assert f"{policy}img-src data:; script-src {sources}" in {
        g.get("content") for _, g in seen.tags
    }
    assert HOSTILE in seen.text
    assert "1 \N{MULTIPLICATION SIGN} <b>broke</b>" in seen.text
    for figure in ("0.143", "0.340", "0.500", "0.683"):  # means by hand: .86/6, 1.7/5, ., 4.1/6
        assert figure in seen.text
    legend = seen.text.split("Adjusted p")[-1]
    assert all(label in legend for label in ("lrp", HOSTILE, "-1", "random"))


def test_a_page_without_curves_holds_no_script(summary: EvaluationSummary) -> None:
    tables = [replace(t, rows=tuple(replace(r, curve=()) for r in t.rows)) for t in summary.tables]
    page = rendered("html", replace(summary, tables=tuple(tables)))
    assert "script" not in {tag for tag, _ in Visible(page).tags} and "script-src" not in page


def test_csv_holds_every_number_and_no_formula(summary: EvaluationSummary) -> None:
    first, *rest = csv.DictReader(io.StringIO(rendered("csv", summary)))
    assert (first["method"], first["rank"], first["best"]) == ("lrp", "1", "lrp")
    assert float(first["mean"]) == pytest.approx(0.86 / 6)
    assert first["difference"] == first["p"] == ""
    assert json.loads(first["parameters"]) == {"baseline": "unk", "shares": [0.1, 0.5]}
    hostile, number, chance = rest
    assert hostile["method"] == f"'{HOSTILE}"
    assert json.loads(hostile["missing_reasons"]) == {"<b>broke</b>": 1}
    assert (hostile["items"], hostile["missing"], hostile["common_items"]) == ("5", "1", "5")
    assert number["method"] == "-1"
    assert float(hostile["difference"]) == pytest.approx((1.7 - 0.71) / 5)
    # of 2^6 changes of sign two are as far from 0; of 2^5 with a difference of 0 among them four.
    # Benjamini-Hochberg leaves the largest of three as it is, the two equal ones get 3 / 2
    assert float(chance["p"]) == pytest.approx(2 / 64)
    assert float(chance["p_adjusted"]) == pytest.approx(3 / 64)
    assert float(hostile["p_adjusted"]) == float(hostile["p"]) == pytest.approx(4 / 32)
    assert chance["kind"] == "random"


def test_markdown_shows_names_literally(summary: EvaluationSummary) -> None:
    text = rendered("md", summary)
    assert "<img" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 5
    unescaped = [line.replace("\\|", "").count("|") for line in rows]
    assert unescaped == [8] * 5
    assert "| lrp | 0.143 |" in text


@pytest.fixture
def timed(db: Database) -> EvaluationSummary:
    """Random relevance of three draws, 0.5, 0.6 and 0.7 on average, and a prediction's seconds."""
    values = {"lrp": [0.2] * 6, "random": [0.6] * 6}
    found = [
        replace(one, detail={"draws": [0.5, 0.6, 0.7]} if one.method == "random" else {})
        for one in scores("hiding", values)
    ]
    found += scores("runtime", {"lrp": [0.25] * 6, "prediction": [0.125] * 6})
    plan = plan_of(list(values), *SPECS, MetricSpec(name="runtime"))
    return tabulate(db, stored(db, plan, found, 6))


def test_the_spread_of_draws_and_the_time_of_a_prediction_are_shown(
    timed: EvaluationSummary,
) -> None:
    assert "SD of 3 draws 0.100" in Visible(rendered("html", timed)).text
    rows = {
        (row["metric"], row["method"]): row
        for row in csv.DictReader(io.StringIO(rendered("csv", timed)))
    }
    drawn = rows["hiding", "random"]
    assert (drawn["draws"], float(drawn["sd_of_draws"])) == ("3", pytest.approx(0.1))
    assert rows["hiding", "lrp"]["draws"] == ""
    alone = rows["runtime", "prediction"]
    assert (alone["kind"], alone["rank"], alone["mean"]) == ("prediction", "", "0.125")
    text = rendered("md", timed)
    assert "| random (mean of 3 draws) | 0.600 |" in text
    found = json.loads(rendered("json", timed))["tables"][0]["rows"][1]
    assert found["spread"] == pytest.approx({"draws": 3, "deviation": 0.1, "low": 0.5, "high": 0.7})


def test_draws_are_stored_with_a_plan(db: Database) -> None:
    plan = plan_of(["lrp", "random"], *SPECS)
    often = replace(plan.methods[1], draws=20)
    for methods in (plan.methods, (plan.methods[0], often)):
        kept = runs.get(db, stored(db, replace(plan, methods=methods), [], 6)).plan
        assert kept.evaluation.methods == methods


def test_numbers_are_written_in_the_decimals_of_their_table() -> None:
    assert [decimals(one) for one in (0.0, 0.5, 2.36, 123.0, 4e7)] == [2, 3, 2, 0, 0]
    assert value(0.03, 0.5) == "0.030"
    assert value(-0.0421) == "−0.0421"  # noqa: RUF001
    assert value(8.3e-8) == "8.3\u00a0×\u00a010⁻⁸"  # noqa: RUF001
    assert change(-0.017, 0.9) == "−0.017"  # noqa: RUF001
    assert change(3e-8, 1e-7).startswith("+3")
    assert span((0.81, 0.9)) == "0.810 to 0.900"
    assert span(None) == ""


def test_a_chart_takes_the_colours_of_its_page() -> None:
    looks = [stroke(place) for place in range(15)]
    assert len(set(looks)) == 15
    series = [Series(x=(0.0, 1.0), y=(0.1, float(n)), stroke=look) for n, look in enumerate(looks)]
    drawn = line_drawing(series, x_title="share", y_title="probability", label="l").still
    colours = {given.get("stroke") for _, given in Visible(drawn).tags} - {None, "none"}
    assert {look.colour for look in looks} <= colours
    assert all(str(colour).startswith("var(--") for colour in colours)
    assert "<script" not in drawn and "style=" not in drawn


def test_the_words_that_classes_share_are_in_every_form(db: Database) -> None:
    spec = MetricSpec(name="token-overlap", params={"reference": "wordfreq:en"})
    rarity = {"the": 0.0, "oil": 4.0, "<b>": 5.0, "game": 3.0, "bank": 2.0}
    items = [("A", "the oil <b>"), ("A", "oil bank"), ("B", "the <b> game"), ("B", "game bank")]

    def of_words(score: MetricScore, number: int, sign: float) -> MetricScore:
        name, words = items[number]
        detail = {
            "class": name,
            "words": words.split(),
            "relevance": [sign * (1 + place) for place in range(len(words.split()))],
            "rarity": [rarity[word] for word in words.split()],
        }
        return replace(score, value=None, detail=detail)

    found = [
        of_words(score, number % 4, 1 if score.method == "lrp" else -1)
        for number, score in enumerate(
            scores("token-overlap", {"lrp": [0.0] * 4, "anti": [0.0] * 4})
        )
    ]
    one = tabulate(db, stored(db, plan_of(["lrp", "anti"], spec), found, 4))
    (table,) = one.tables
    rows = {row.method: row for row in table.rows}
    # A: <b> 3 x 5, oil (2 + 1) x 4, bank 2 x 2; B: game (3 + 1) x 3, <b> 2 x 5, bank 2 x 2
    assert [(w.class_name, w.words) for w in rows["lrp"].lists] == [
        ("A", ("<b>", "oil", "bank")),
        ("B", ("game", "<b>", "bank")),
    ]
    assert [(w.classes, w.words) for w in rows["lrp"].shared] == [(("A", "B"), ("<b>", "bank"))]
    assert [w.scores for w in rows["lrp"].lists] == [(15.0, 12.0, 4.0), (12.0, 10.0, 4.0)]
    assert rows["anti"].lists == () == rows["anti"].shared
    assert rows["anti"].missing == {"fewer than two classes have words": 4}
    stored_json = json.loads(rendered("json", one))
    assert stored_json["tables"][0]["rows"][0]["shared"] == [
        {"classes": ["A", "B"], "words": ["<b>", "bank"]}
    ]
    seen = Visible(rendered("html", one))
    assert "b" not in {tag for tag, _ in seen.tags}
    sizes = [given["class"] for tag, given in seen.tags if tag == "li" and "class" in given]
    # alphabetical: <b> bank oil, <b> bank game; equal steps from 4 to 15, and from 4 to 12
    assert sizes == ["w5", "w1", "w4", "w4", "w1", "w5"]
    for text in ("<b>, oil, bank", "2: <b>, bank"):
        assert text in " ".join(seen.text.split())
    assert "of A and B: &lt;b&gt;, bank" in rendered("md", one)


def test_the_script_of_charts_is_made_once_and_again_where_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import vl_convert

    bundled: list[str] = []

    def bundle(snippet: str) -> str:
        bundled.append(snippet)
        return "const e\u0301 = 1;"

    monkeypatch.setattr(vl_convert, "javascript_bundle", bundle)
    monkeypatch.setenv("TRANSEXPLAIN_CACHE_DIR", str(tmp_path / "cache"))
    made = charts.scripts.__wrapped__
    first = made()
    assert made() == first and len(bundled) == 1
    (kept,) = (tmp_path / "cache").iterdir()
    whole = kept.read_bytes()
    for damaged in (whole[:-1], whole.replace(b"1;", b"2;"), b"\xff\n", b""):
        kept.write_bytes(damaged)
        assert made() == first and kept.read_bytes() == whole
    assert len(bundled) == 5
    monkeypatch.setenv("TRANSEXPLAIN_CACHE_DIR", str(kept))  # a file where a folder should be
    assert made() == first and len(bundled) == 6


# ---- a report of an audit that carries a sample's score ----------------------------------------


@pytest.mark.exhaustive
def test_the_comparison_with_random_by_hand(db: Database) -> None:
    plan = plan_of(
        ["lrp", "random"], MetricSpec(name="comprehensiveness"), MetricSpec(name="sufficiency")
    )
    own = [0.5 + 0.01 * n for n in range(8)]
    given = [
        *scores("comprehensiveness", {"lrp": own, "random": [0.3] * 8}),
        *scores("sufficiency", {"lrp": [0.6] * 7 + ["one position"], "random": [0.2, 1.0] * 4}),
    ]
    summary = summarise(db, stored(db, plan, given, 8, task="audit"))
    first, second = summary.faithfulness.rows
    assert (first.mean, first.random) == pytest.approx((0.535, 0.3))
    assert first.difference == pytest.approx(0.235)
    # 2 of 2^8 changes of sign, times two rows
    assert first.p == pytest.approx(4 / 256)
    assert first.beats is True
    # seven common items: 0.4 four times and -0.4 three times; every change of sign is as far
    assert (second.common, second.missing) == (7, 1)
    assert second.difference == pytest.approx(0.4 / 7)
    assert second.p == pytest.approx(1.0)
    assert second.beats is False
    assert "Measured on 8 texts" in Visible(REPORTS.load("html")(summary)).text
    assert summary.headline[-1].kind == "problem"
    assert "Sufficiency (AOPC)" in summary.headline[-1].text
