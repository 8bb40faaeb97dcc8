"""Language models of many architectures with random weights: the ledger closes, on both sides."""

from typing import Any

import pytest
import torch
import transformers
from architectures_decoders import (
    DECODER_SETTINGS,
    DECODERS,
    ENCODER_DECODER_SETTINGS,
    ENCODER_DECODERS,
    SCANS,
)
from architectures_record import randomised
from everyday import only

import transexplain as te
from transexplain.errors import EngineError
from transexplain.extras.language.prompt_encoder import LanguageKind

PROMPT, ANSWER = [5, 9, 7, 11, 6, 8], [12, 20, 4]
#: scans compute in float32
TOLERANCE = dict.fromkeys(SCANS, 1e-5)
TOLERANCE |= {one.name: one.tolerance for one in (*DECODERS, *ENCODER_DECODERS)}
#: JetMoE's own code fails where an expert gets nothing, and Mistral 4 has no language model of
#: text alone
NOT_HERE = {"JetMoE", "Mistral 4"}
SETTINGS = {**DECODER_SETTINGS, **SCANS}
CAUSAL = [name for name in SETTINGS if name not in NOT_HERE]
AUTO: dict[str, Any] = {
    "causal": transformers.AutoModelForCausalLM,
    "encoder-decoder": transformers.AutoModelForSeq2SeqLM,
}


def test_there_are_enough() -> None:
    assert len(CAUSAL) >= 30 and len(ENCODER_DECODER_SETTINGS) >= 8


@pytest.mark.parametrize("name", only("GPT-2", "Llama", "Mamba", of=CAUSAL))
def test_causal(name: str) -> None:
    _check(name, SETTINGS[name], "causal")


@pytest.mark.parametrize("name", only("T5", "BART", of=ENCODER_DECODER_SETTINGS))
def test_encoder_decoders(name: str) -> None:
    _check(name, ENCODER_DECODER_SETTINGS[name], "encoder-decoder")


def test_rwkv_is_refused_by_name() -> None:
    """Its weights of values are quotients of exponentials of keys, which no rule divides."""
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "context_length": 16}
    module = randomised(transformers.RwkvForCausalLM(transformers.RwkvConfig(**sizes)))
    model = te.load_language_model(module, kind="causal")
    with pytest.raises(EngineError, match=r"'div' .* modeling_rwkv.* the denominator carries"):
        te.explain_answers(model, {"input_ids": PROMPT})


def _check(name: str, made_of: tuple[str, dict[str, Any]], kind: LanguageKind) -> None:
    stem, settings = made_of
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = getattr(transformers, f"{stem}Config")(**settings)
        module = randomised(AUTO[kind].from_config(config))
    model = te.load_language_model(module, kind=kind)
    for value in ("logit", "log-probability"):
        found = te.explain_answers(
            model, {"input_ids": PROMPT}, target={"continuation": ANSWER}, value=value
        )
        logits = _logits(module, kind, model.start)
        wanted = logits if value == "logit" else logits.log_softmax(-1)
        for step, one in enumerate(found):
            # some models compute their positions in float32, whatever their type
            assert one.logit == pytest.approx(float(wanted[step, ANSWER[step]]), abs=1e-6)
            assert one.ledger.relative_gap <= TOLERANCE[name]
            assert len(one.relevance) == len(PROMPT) + step + (kind != "causal")
            assert abs(one.relevance).min() > 0, "every position that is read has a part"


@torch.no_grad()
def _logits(module: Any, kind: str, start: int | None) -> torch.Tensor:
    """(3, V) at the positions that predict the answer, by the module itself."""
    if kind == "causal":
        ids = torch.tensor([PROMPT + ANSWER[:-1]])
        return module(input_ids=ids, use_cache=False).logits[0, len(PROMPT) - 1 :]
    sides = {"input_ids": torch.tensor([PROMPT])}
    sides["decoder_input_ids"] = torch.tensor([[start, *ANSWER[:-1]]])
    return module(**sides, use_cache=False).logits[0]
