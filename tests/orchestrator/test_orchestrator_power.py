"""What `plan` promises of a run: effects that it finds, and those whose absence it shows."""

import json
import re
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


def smallest_effect(words: str) -> float:
    """The change of the logit by a mention that 9 of 10 runs find."""
    found = re.search(r"mention ([0-9.]+) and", words)
    assert found is not None, words
    return float(found[1])


def test_texts_of_one_template_are_one_text_and_cost_no_swaps(tmp_path: Path) -> None:
    lexicon = {"first": ["Ann", "Ben", "Cid", "Dee"], "second": ["Eve", "Fay", "Gil", "Hal"]}
    (tmp_path / "names.json").write_text(json.dumps(lexicon), encoding="utf-8")
    names = [name for group in lexicon.values() for name in group]
    rows = [
        {"text": f"a nice film by {name} and {number}", "template": str(number)}
        for number in range(12)
        for name in names
    ]
    base = load_spec(make_audit(tmp_path), settings=("evaluation.items=0",))
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "corpus.jsonl").write_text(lines, encoding="utf-8")
    groups = base.groups.model_copy(update={"lexicon": str(tmp_path / "names.json")})
    settings, found = Settings(snapshot_dir=tmp_path / "snapshots"), []
    for template in (None, "template"):
        data = base.data.model_copy(
            update={"source": str(tmp_path / "corpus.jsonl"), "template": template}
        )
        spec = base.model_copy(update={"data": data, "groups": groups})
        found.append(estimate(prepare_audit(spec, settings)))
    alone, templates = found
    assert alone.swaps > 0 and templates.swaps == 0
    for group in lexicon:
        assert smallest_effect(templates.power[group]) > smallest_effect(alone.power[group])
