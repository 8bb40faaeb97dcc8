"""An explainer for a real classifier that stays as it is, from real sentences."""

import gzip
from pathlib import Path

import pytest
from tiny_trainings import StopAt, snapshot

import transexplain as te
from transexplain.extras.learned.learned_facts import read_facts
from transexplain.extras.training.training_plans import ExplainerPlan, FitPlan, TrainingPlan
from transexplain.extras.training.training_runs import train

pytestmark = pytest.mark.shared
SENTENCES = 500


@pytest.mark.exhaustive
def test_a_few_sentences_teach_most_of_the_ranking(shared_dir: Path, tmp_path: Path) -> None:
    real = shared_dir / "real"
    with gzip.open(real / "text" / "sst2_train.tsv.gz", "rt", encoding="utf-8") as file:
        lines = [line for line in file if 10 <= len(line.split()) <= 20][:SENTENCES]
    data = tmp_path / "sentences.tsv"
    data.write_text("label\ttext\n" + "".join(lines), encoding="utf-8")
    plan = TrainingPlan(
        source=str(real / "models" / "minilm-sst2"),
        dataset=snapshot(str(data), tmp_path),
        output=tmp_path / "out",
        fit=None,
        share=0.2,
        labels={"0": "negative", "1": "positive"},
        explainer=ExplainerPlan(fit=FitPlan(epochs=6, batch_size=32)),
    )
    trained = train(plan, StopAt())
    facts = read_facts(trained.explainer)
    assert facts.forwards < 1.1
    assert facts.agreement.items > 80
    assert facts.agreement.rank_correlation > 0.5
    model = te.load_model(plan.source)
    texts = ["a gorgeous , witty , seductive movie", "the plot is dull and far too long ."]
    for attribution in te.explain(model, texts, "learned", explainer=str(trained.explainer)):
        taught = te.explain(model, attribution.text, "lrp", target=attribution.target)[0]
        assert attribution.class_name == taught.class_name
        assert attribution.relevance.sum() == pytest.approx(taught.relevance.sum(), rel=0.5)
