"""What `plan` promises of a run: effects that it finds, and those whose absence it shows."""

from pathlib import Path

from tiny_audit import make_audit

from orchestrator.plan import prepare_audit
from orchestrator.plan.estimate import Estimate, estimate
from orchestrator.spec import load_spec
from transexplain.settings import Settings


def estimated(folder: Path, **groups: object) -> Estimate:
    """The estimate of a tiny audit, its groups with further keys."""
    lexicon = {"lexicon": str(folder / "groups.json"), **groups}
    spec = load_spec(make_audit(folder, groups=lexicon), settings=("evaluation.items=0",))
    return estimate(prepare_audit(spec, Settings(snapshot_dir=folder / "snapshots")))


def test_both_questions_have_a_power_for_every_group(tmp_path: Path) -> None:
    found = estimated(tmp_path)
    assert set(found.power) == {"things", "praise"}
    for words in found.power.values():
        assert "mention" in words
        assert "outcome" in words
    assert "9 of 10 runs find" in found.summary_text()


def test_without_swaps_only_rates_are_promised(tmp_path: Path) -> None:
    found = estimated(tmp_path, check=0)
    assert all("mention" not in words for words in found.power.values())


def test_a_reference_is_compared_with_nothing(tmp_path: Path) -> None:
    assert set(estimated(tmp_path, reference="praise").power) == {"things"}
