"""The demo as a user runs it, and how often its verdict is right over training seeds."""

import os
from pathlib import Path

import pytest

from orchestrator.demo.demo_run import Verdict, audit, judge, run_demo, text_spec
from orchestrator.demo.text_model import make_text_demo
from transexplain.settings import Settings

#: trainings of the demo's model; ten take four minutes
SEEDS = range(int(os.environ.get("TRANSEXPLAIN_SEEDS", "4")))


@pytest.mark.exhaustive
def test_the_demo_ends_with_two_reports_and_the_right_verdict(tmp_path: Path) -> None:
    printed: list[str] = []
    verdict = run_demo(tmp_path, 0, say=printed.append)
    assert verdict == Verdict(planted_found=True, unbiased_flagged=(), unbiased_open=())
    assert "was found; unbiased groups flagged: none; mention still open for: none" in printed[-1]
    assert len(list(tmp_path.glob("demo-letters-*.html"))) == 1
    assert len(list(tmp_path.glob("demo-digits-*.html"))) == 1


@pytest.mark.exhaustive
@pytest.mark.timeout(1500)
def test_training_seeds_do_not_change_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts = []
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        demo = make_text_demo(folder / "text", seed)
        settings = Settings(
            database_url=f"sqlite:///{folder / 'demo.db'}", snapshot_dir=folder / "snapshots"
        )
        verdicts.append(judge(audit(text_spec(demo), settings, folder, lambda line: None), demo))
    planted = sum(verdict.planted_found for verdict in verdicts)
    unbiased = sum(bool(verdict.unbiased_flagged) for verdict in verdicts)
    opened = sum(bool(verdict.unbiased_open) for verdict in verdicts)
    with capsys.disabled():
        print(  # noqa: T201
            f"\nover {len(SEEDS)} training seeds: planted group found {planted} times, "
            f"an unbiased group flagged {unbiased} times, its mention left open {opened} times"
        )
    assert planted == len(SEEDS)
    assert opened == 0, "480 texts settle whether the mention changes the prediction"
    assert unbiased <= 1, "at most 5 % are flagged where swapping does nothing beyond 0.1 logit"
