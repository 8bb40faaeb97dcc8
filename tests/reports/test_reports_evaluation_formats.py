"""The forms of an evaluation's report: complete, the same numbers, safe with hostile names."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from evaluation_samples import plan_of, scores, stored
from report_samples import Visible

from transexplain.reports import EVALUATION_REPORTS, charts
from transexplain.reports.charts import Series, lines, stroke
from transexplain.reports.evaluation import EvaluationSummary, tabulate
from transexplain.reports.evaluation.evaluation_text import change, decimals, span, value
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.types.scores import MetricScore, MetricSpec

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
    text: str = EVALUATION_REPORTS.load(form)(summary)
    return text


def test_the_page_is_complete_in_itself_and_escapes_every_name(summary: EvaluationSummary) -> None:
    page = rendered("html", summary)
    seen = Visible(page)
    tags = {tag for tag, _ in seen.tags}
    assert not tags & {"img", "b", "link", "iframe"}
    assert [given for tag, given in seen.tags if tag == "script"] == [
        {"type": "application/json"},  # the numbers of the only chart
        {},
        {},
    ]
    assert not any(name.startswith("on") for _, given in seen.tags for name in given)
    policy = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; "
    sources = " ".join(one.source for one in charts.scripts())
    assert f"{policy}img-src data:; script-src {sources}" in {
        g.get("content") for _, g in seen.tags
    }
    assert HOSTILE in seen.text
    assert "1 \N{MULTIPLICATION SIGN} <b>broke</b>" in seen.text
    assert "In the place of hidden positions: the unknown token." in seen.text
    assert "Lower is better, in probability" in seen.text
    for figure in ("0.143", "0.340", "0.500", "0.683"):  # means by hand: .86/6, 1.7/5, ., 4.1/6
        assert figure in seen.text
    (drawing,) = (given for tag, given in seen.tags if given.get("class") == "marks")
    assert drawing["viewbox"]
    legend = seen.text.split("Adjusted p")[-1]
    assert all(label in legend for label in ("lrp", HOSTILE, "-1", "random"))


def test_a_page_without_curves_holds_no_script(summary: EvaluationSummary) -> None:
    tables = [replace(t, rows=tuple(replace(r, curve=()) for r in t.rows)) for t in summary.tables]
    page = rendered("html", replace(summary, tables=tuple(tables)))
    assert "script" not in {tag for tag, _ in Visible(page).tags}
    assert "script-src" not in page and "It runs no script." in Visible(page).text


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


def test_json_is_the_record(summary: EvaluationSummary) -> None:
    found = json.loads(rendered("json", summary))
    assert found["schema_version"] == 1
    (one,) = found["tables"]
    assert [row["method"] for row in one["rows"]] == [r.method for r in summary.tables[0].rows]
    assert one["rows"][0]["mean"] == summary.tables[0].rows[0].mean
    assert found["evaluated"]["methods"]["random"]["name"] == "random"


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
    page = Visible(rendered("html", timed)).text
    assert "SD of 3 draws 0.100" in page
    assert "Random relevance is drawn 3 times" in page
    assert "prediction no explanation" in " ".join(page.split())
    assert "a forward pass alone" in page
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
    assert text.count("SD of draws") == 1
    found = json.loads(rendered("json", timed))["tables"][0]["rows"][1]
    assert found["spread"] == pytest.approx({"draws": 3, "deviation": 0.1, "low": 0.5, "high": 0.7})


def test_draws_that_differ_between_items_have_no_spread(db: Database) -> None:
    found = [
        replace(one, detail={"draws": [0.5] * (2 + place % 2)})
        for place, one in enumerate(scores("hiding", {"random": [0.5] * 6}))
    ]
    summary = tabulate(db, stored(db, plan_of(["random"], *SPECS), found, 6))
    assert summary.tables[0].rows[0].spread is None


def test_draws_are_stored_with_a_plan(db: Database) -> None:
    plan = plan_of(["lrp", "random"], *SPECS)
    often = replace(plan.methods[1], draws=20)
    for methods in (plan.methods, (plan.methods[0], often)):
        kept = runs.get(db, stored(db, replace(plan, methods=methods), [], 6)).plan
        assert kept.evaluation is not None
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


def test_a_chart_names_nobody_and_takes_the_colours_of_its_page() -> None:
    looks = [stroke(place) for place in range(15)]
    assert len(set(looks)) == 15
    series = [Series(x=(0.0, 1.0), y=(0.1, float(n)), stroke=one) for n, one in enumerate(looks)]
    drawn = lines(series, x_title="share of positions shown", y_title="probability")
    seen = Visible(drawn)
    colours = {given.get("stroke") for _, given in seen.tags} - {None, "none"}
    assert {one.colour for one in looks} <= colours
    assert all(str(colour).startswith("var(--") for colour in colours)
    assert "100%" in seen.text
    assert "<script" not in drawn
    assert "style=" not in drawn


def test_the_words_that_classes_share_are_in_every_form(db: Database) -> None:
    spec = MetricSpec(name="token-overlap", params={"reference": "wordfreq:en"})
    rarity = {"the": 0.0, "oil": 4.0, "<b>": 5.0, "game": 3.0, "bank": 2.0}
    items = [("A", "the oil <b>"), ("A", "oil bank"), ("B", "the <b> game"), ("B", "game bank")]

    def score(method: str, number: int, sign: float) -> MetricScore:
        name, words = items[number]
        detail = {
            "class": name,
            "words": words.split(),
            "relevance": [sign * (1 + place) for place in range(len(words.split()))],
            "rarity": [rarity[word] for word in words.split()],
        }
        return MetricScore(
            item_id=f"row-{number}",
            method=method,
            target="predicted",
            metric="token-overlap",
            value=None,
            detail=detail,
        )

    found = [score(name, n, sign) for name, sign in (("lrp", 1), ("anti", -1)) for n in range(4)]
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
    for text in ("Words by class and method", "<b>, oil, bank", "A and B", "2: <b>, bank"):
        assert text in " ".join(seen.text.split())
    markdown = rendered("md", one)
    assert "- in the first 50 of A and B: &lt;b&gt;, bank" in markdown


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
