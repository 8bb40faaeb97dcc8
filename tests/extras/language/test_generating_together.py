"""Prompts that are generated from in batches have the answers that each has alone."""

from collections.abc import Callable
from typing import Any

import pytest
import tiny_language as tiny
import torch
import transformers
from architectures_record import randomised

import transexplain as te
from transexplain.extras.language.language_model import LanguageModel, TogetherGeneration
from transexplain.extras.language.load_language import generating
from transexplain.types.items import Item

TEXT = "The nurse said that he was late, and the doctor said that she was early."
COUNT = 6


def llama() -> Any:
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        vocab_size=330, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    return randomised(transformers.LlamaForCausalLM(config))


def opened(module: Any) -> tuple[LanguageModel, list[list[int]]]:
    """The model and 18 prompts of 1 to 35 tokens, of which one would be a batch of its own."""
    ids = tiny.byte_pairs()(TEXT).input_ids
    return te.load_language_model(module, tiny.byte_pairs()), [ids[: 1 + 2 * n] for n in range(18)]


def together(model: LanguageModel) -> TogetherGeneration:
    found = model.reader.measured["generation"]
    assert isinstance(found, TogetherGeneration)
    return found


def counted(module: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many prompts each call of the module's `generate` is given."""
    rows: list[int] = []
    own = module.generate

    def generate(ids: torch.Tensor, **more: Any) -> torch.Tensor:
        rows.append(len(ids))
        return own(ids, **more)

    monkeypatch.setattr(module, "generate", generate, raising=False)
    return rows


@pytest.mark.parametrize("make", [tiny.causal, llama], ids=["absolute", "rotary"])
def test_answers_are_those_of_each_prompt_alone(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, prompts = opened(make())
    alone = [model.generate(one, COUNT) for one in prompts]
    assert len({tuple(one) for one in alone}) > 1
    rows = counted(model.module, monkeypatch)
    assert model.generate_together(prompts, COUNT) == alone
    assert rows == [1, 2, 16, 2], "a measurement, and two batches"
    assert model.generate_together(prompts[::-1], COUNT) == alone[::-1]
    assert rows[4:] == [16, 2], "which is made once"


def test_a_model_that_reads_padding_reads_each_prompt_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = tiny.causal()
    forward = module.forward

    def blind(**given: Any) -> Any:
        given.pop("attention_mask")
        given.pop("position_ids", None)
        return forward(**given)

    model, prompts = opened(module)
    monkeypatch.setattr(module, "forward", blind)
    alone = [model.generate(one, COUNT) for one in prompts]
    rows = counted(module, monkeypatch)
    assert model.generate_together(prompts, COUNT) == alone
    assert rows == [1, 2, *[1] * 18]


def test_a_prompt_behind_which_two_tokens_are_as_likely_is_read_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = tiny.causal(tie_word_embeddings=False)
    model, prompts = opened(module)
    said = model.generate(prompts[-1], 1)[0]
    with torch.no_grad():
        module.lm_head.weight[329] = module.lm_head.weight[said]
    alone = [model.generate(one, 1) for one in prompts]
    tied = sum(one in ([said], [329]) for one in alone)
    assert tied > 0
    rows = counted(module, monkeypatch)
    assert model.generate_together(prompts, 1) == alone
    assert sum(one == 1 for one in rows) == 1 + tied, "the measurement's and these"


def test_where_most_are_read_again_nothing_is_read_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = tiny.causal()
    model, prompts = opened(module)
    with torch.no_grad():
        module.lm_head.weight.zero_()  # every token is as likely
    rows = counted(module, monkeypatch)
    for _ in range(3):
        model.generate_together(prompts, 1)
    assert max(rows[-18:]) == 1


def test_a_prompt_near_the_limit_has_as_many_tokens_as_there_is_room_for() -> None:
    model = te.load_language_model(tiny.causal(), tiny.byte_pairs())
    reader = generating(model, COUNT)
    ids = tiny.byte_pairs()(TEXT * 4).input_ids
    text = tiny.byte_pairs().decode(ids[:62])
    full = tiny.byte_pairs().decode(ids[:64])
    items = [Item(id=str(n), index=n, content=one) for n, one in enumerate([text, TEXT, full])]
    found = reader.encode(items)
    assert [getattr(one, "kind", "") for one in found] == ["", "", "too-long"]
    assert found[0].length <= 64 and found[0].item.texts[0] == text  # type: ignore[union-attr]
