"""Loads causal, masked and encoder-decoder language models, and what audits take them as.

A causal model is audited by its one answer to a prompt, and how likely that is. It goes on with a
prompt, the likeliest token each time, and what it said is read behind the prompt as the second
text of a pair is. Its only logit is the log-probability of that answer. So whatever changes a
prompt later (a name that is swapped) leaves the answer as it was.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from transexplain.errors import ItemError, ModelLoadError
from transexplain.extras.language.language_model import LanguageModel, assemble_language, kind_of
from transexplain.extras.language.prompt_encoder import AnswerCaller, PromptEncoder
from transexplain.models import huggingface
from transexplain.models.assemble import Origin
from transexplain.models.calling import Caller, place_of, torch_dtype, unwrapped
from transexplain.models.configs import LanguageKind, kind_of_class, read_config
from transexplain.models.hub import folder_of
from transexplain.models.loaded_model import Encoded, LoadedModel, LongText, failure
from transexplain.types.items import Item, ItemFailure
from transexplain.types.pairs import joined
from transexplain.types.plans import GENERATED
from transexplain.types.tokens import Tokens

#: (T,) of an encoded item: 1 at the tokens of its answer
ANSWERED = "answered"
_BEHIND = 8  #: tokens of a prompt that an answer is decoded behind, as many drop a first space


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratedCaller(Caller):
    """The log-probability of the answer that a sequence ends with, as its only logit (B, 1)."""

    count: int  #: tokens of the longest answer

    def __call__(self, module: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
        """(B, 1) of one forward pass; sequences without an answer have 0."""
        ids, marked = inputs[self.main], inputs[ANSWERED]
        own = {name: values for name, values in inputs.items() if name != ANSWERED}
        logits = Caller.__call__(self, module, own)
        # shapes that depend on no value: passes of one shape may be recorded and played again
        places = marked.argmax(dim=1, keepdim=True) + torch.arange(self.count, device=ids.device)
        inside = places < ids.shape[1]
        places = places.clamp(1, ids.shape[1] - 1)
        weights = (marked.gather(1, places) * inside).to(logits.dtype)
        rows = torch.arange(len(ids), device=ids.device)[:, None]
        logs = torch.log_softmax(logits[rows, places - 1], dim=-1)
        columns = torch.arange(self.count, device=ids.device)[None]
        return (logs[rows, columns, ids.gather(1, places)] * weights).sum(dim=1, keepdim=True)


class AnsweredEncoder(PromptEncoder):
    """Encodes prompts with the answers to them; the second text of a pair is an answer given."""

    model: LanguageModel  #: that answers
    count: int  #: tokens of an answer at most

    def encode(
        self, items: Sequence[Item], *, long_text: LongText, max_length: int | None
    ) -> list[Encoded | ItemFailure]:
        """Each prompt with its answer, as a pair, or its failure.

        An answer without a token is the failure `empty-answer`; `joined-token` is one whose
        beginning the tokenizer joins with the prompt's end.
        """
        entries: dict[int, Encoded | ItemFailure] = {}
        prompts: dict[int, Item] = {}
        given: dict[int, str] = {}
        for place, item in enumerate(items):
            try:
                prompts[place] = self._parted(item, place, given)
            except ItemError as error:
                entries[place] = failure(item, error)
        made = super().encode([*prompts.values()], long_text=long_text, max_length=max_length)
        encoded = dict(zip(prompts, made, strict=True))
        said = self._generated({n: entry for n, entry in encoded.items() if n not in given})
        for place, prompt in encoded.items():
            try:
                answered = prompt
                if isinstance(prompt, Encoded):
                    text = given.get(place) or self._said(
                        prompt.inputs["input_ids"].tolist(), str(prompt.item.content), said[place]
                    )
                    answered = self._answered(items[place], prompt, text)
                entries[place] = answered
            except ItemError as error:
                entries[place] = failure(items[place], error)
        return [entries[place] for place in range(len(items))]

    def _parted(self, item: Item, place: int, given: dict[int, str]) -> Item:
        """The item's prompt; `given` gets the answer, where there is one."""
        self._check_string(item)
        prompt, *answer = item.texts
        if answer:
            given[place] = answer[0]
        return replace(item, content=prompt, second_at=None)

    def _generated(self, prompts: Mapping[int, Encoded | ItemFailure]) -> dict[int, list[int]]:
        """The tokens behind each prompt; none where there is no room for any."""
        found: dict[int, list[int]] = {}
        together: dict[int, list[int]] = {}
        for place, prompt in prompts.items():
            if isinstance(prompt, Encoded):
                ids: list[int] = prompt.inputs["input_ids"].tolist()
                if self._left(ids) == self.count:
                    together[place] = ids
                else:
                    found[place] = self._behind(ids)
        answers = self.model.generate_together([*together.values()], self.count)
        return found | dict(zip(together, answers, strict=True))

    def _behind(self, ids: Sequence[int], nearby: "NearbyAnswer | None" = None) -> list[int]:
        room = self._left(ids)
        return self.model.generate(ids, room, chosen=nearby) if room else []

    def _left(self, ids: Sequence[int]) -> int:
        """The most tokens that there may be behind a prompt."""
        most = self.count if self.limit is None else self.limit - len(ids)
        return max(0, min(self.count, most))

    def _answered(self, item: Item, prompt: Encoded, text: str) -> Encoded:
        ids, tokens = self.behind(prompt, text)
        length, more = prompt.length, len(ids) - prompt.length
        if not 0 < more <= self.count:
            raise ItemError(
                "too-long" if more else "empty-answer",
                f"{text!r:.40} is {more} tokens behind this prompt; an answer "
                f"has 1 to {self.count} (?generate=)",
            )
        if self.limit is not None and len(ids) > self.limit:
            raise ItemError(
                "too-long",
                f"prompt and answer are {len(ids)} tokens; the model takes {self.limit}",
            )
        whole, second_at = joined(str(prompt.item.content), text)
        inputs = {
            name: torch.cat([row, row[-1:].expand(more)]) for name, row in prompt.inputs.items()
        }
        if "position_ids" in inputs:
            inputs["position_ids"] = torch.arange(len(ids))
        marks = torch.arange(len(ids)).ge(length).long()
        return Encoded(
            item=replace(item, content=whole, second_at=second_at),
            inputs={**inputs, "input_ids": torch.tensor(ids), ANSWERED: marks},
            features=_of_pair(tokens, length, whole),
            length=len(ids),
            truncated=False,
        )

    def said_nearby(self, prompt: str, answer: str, share: float) -> tuple[str, float]:
        """What the model may as well say: `answer`, as far as its tokens are as likely as any.

        Tokens are where their logits are at most `share` of the scale apart; see `NearbyAnswer`.
        The number is how far apart the two likeliest were where they were nearest, as such a
        share. Raises ItemError.
        """
        before, _ = self.read(prompt)
        whole = self.read(prompt + answer)[0] if answer else before
        nearby = NearbyAnswer(len(before), whole[len(before) :], self.model.ends, share)
        return self._said(before, prompt, self._behind(before, nearby)), nearby.nearest

    def _said(self, before: list[int], content: str, made: Sequence[int]) -> str:
        """The text of the tokens that were `made` behind a prompt; raises ItemError.

        Its end is left out where the text would not be read as the same tokens again, as with the
        half of a character: a changed prompt has its answer as text.
        """
        if not self._left(before):
            raise ItemError(
                "too-long", f"behind a prompt of {len(before)} tokens there is no room for more"
            )
        begun = before[-_BEHIND:]
        front = len(self._decoded(begun))
        for count in range(len(made), 0, -1):
            said = self._decoded([*begun, *made[:count]])[front:]
            if said.strip():
                ids, _ = self.read(content + said)
                if ids == [*before, *made[:count]]:
                    return said
        raise ItemError("empty-answer", "the model says nothing behind this prompt that is text")

    def _decoded(self, ids: Sequence[int]) -> str:
        assert self.tokenizer is not None
        return str(self.tokenizer.decode(ids, clean_up_tokenization_spaces=False))


class NearbyAnswer:
    """Takes the tokens of an answer instead of the likeliest ones, where they are as likely.

    The logits of two tokens are as good as equal where they differ by at most `share` of the
    largest |logit|, or of 1. Behind the answer an end is taken where it is as likely. It stands
    between the logits of transformers' `generate` and the choice of the likeliest.
    """

    def __init__(
        self, begun: int, answer: Sequence[int], ends: Collection[int], share: float
    ) -> None:
        """Of one prompt of `begun` tokens."""
        self.nearest = np.inf  #: the smallest difference of two likeliest logits, as a share
        self._begun, self._answer, self._ends = begun, list(answer), sorted(ends)
        self._share = share

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        """(1, V) logits of the next token behind ids (1, T), with the token that is taken first."""
        best = logits[0].topk(2).values
        scale = max(1.0, float(logits[0][logits[0].isfinite()].abs().max()))
        self.nearest = min(self.nearest, float(best[0] - best[1]) / scale)
        said = ids[0, self._begun :].tolist()
        if said != self._answer[: len(said)]:
            return logits
        wanted = self._answer[len(said) : len(said) + 1] or self._ends
        near = [token for token in wanted if best[0] - logits[0, token] <= self._share * scale]
        if near:
            logits = logits.clone()
            logits[0, near[0]] = best[0] + scale
        return logits


def _of_pair(tokens: Tokens, prompt: int, text: str) -> Tokens:
    """The tokens of prompt and answer, the answer's one character and one word further on."""
    behind = (np.arange(len(tokens)) >= prompt) & ~tokens.special
    shift = behind.astype(np.int32)
    return Tokens(
        starts=tokens.starts + shift,
        ends=tokens.ends + shift,
        words=tokens.words + shift,
        special=tokens.special,
        pieces=tokens.texts,
        text=text,
    )


def generating(model: LanguageModel, count: int, source: str | None = None) -> LoadedModel:
    """The model with its own answers of at most `count` tokens; everything that audits take it for.

    Its one class is `answer`, whose logit is the log-probability of the answer in nats. `source` is
    what it is recorded as. Raises ModelLoadError for a model that cannot, and without a tokenizer.
    """
    if model.kind != "causal" or model.pictures is not None or model.tokenizer is None:
        what = "has no tokenizer" if model.tokenizer is None else "is no causal model of texts"
        raise ModelLoadError(
            f"{model!r} {what}: audits of generated answers need one; explain single answers with "
            "explain_answers, or audit words that may come next with ?answers=WORD,WORD"
        )
    reader, encoder = model.reader, model.encoder
    answered = AnsweredEncoder(
        encoder.tokenizer,
        limit=encoder.limit,
        usual=None,
        padding=encoder.padding,
        vocabulary=encoder.vocabulary,
        device=encoder.device,
        takes=encoder.takes,
    )
    answered.count = count
    answered.model = model
    caller = reader.caller
    assert isinstance(caller, AnswerCaller)
    own: dict[str, Any] = {field.name: getattr(caller, field.name) for field in fields(Caller)}
    ref = replace(
        reader.ref, classes=(GENERATED,), head=GENERATED, source=source or reader.ref.source
    )
    return replace(
        reader,
        classes=(GENERATED,),
        encoder=answered,
        caller=GeneratedCaller(**own, count=count),
        ref=ref,
    )


#: what the source of a classifier over words that may come next begins with
PREFIX = "lm:"
_FORM = f"{PREFIX}FOLDER?answers=WORD,WORD, or {PREFIX}FOLDER?generate=NUMBER"
_MOST = 1024  #: tokens of a generated answer


@torch.inference_mode(False)
def load_language_model(
    source: Any,
    tokenizer: Any = None,
    *,
    kind: LanguageKind | None = None,
    processor: Any = None,
    dtype: Any = None,
    device: str | None = None,
) -> LanguageModel:
    """The language model at `source`, or the one that is in memory already.

    Args:
        source: a directory with config.json and safetensors, a hub id, or a module of
            transformers with a language-model head; it stays as it is.
        tokenizer: of a module in memory, a fast one; without one prompts are token numbers.
        processor: of a module in memory that reads pictures in prompts (LLaVA): an image processor,
            or a function from an RGB picture to (3, H, W).
        kind: `causal`, `masked` or `encoder-decoder`; default: what the configuration, or the
            class of the module, says.
        dtype: that files are loaded as: float32 (the default), float64, bfloat16 or float16.
        device: torch device that files are loaded to; default: cpu.

    Raises ModelLoadError naming what is wrong and the remedy.
    """
    if kind not in (None, "causal", "masked", "encoder-decoder"):
        raise ModelLoadError(f"kind is causal, masked or encoder-decoder, not {kind!r:.80}")
    if isinstance(source, nn.Module):
        module = unwrapped(source)
        transform = huggingface.transform_of(processor)
        return assemble_language(
            module.eval(),
            kind=kind or ("causal" if transform is not None else kind_of(module)),
            tokenizer=tokenizer,
            origin=Origin.in_memory(module),
            transform=transform,
        )
    if not isinstance(source, str | Path) or tokenizer is not None or processor is not None:
        raise ModelLoadError(
            "a language model is a directory, a hub id, or a module of transformers with its "
            f"tokenizer, not {source!r:.80}"
        )
    folder, text = folder_of(source)
    config = read_config(folder)
    pictures = kind is None and _has_pictures(config)
    named = "pictures" if pictures else kind or _kind_of_config(config)
    if named is None:
        raise ModelLoadError(
            f"{text}: the architectures of its config.json, {config.get('architectures')!r:.80}, "
            "have no language-model head; give the directory of a model that was saved with one, "
            "or say kind="
        )
    given, read, origin = huggingface.read_language_model(
        folder,
        named,
        source=text,
        dtype=torch_dtype(str(dtype or "float32").removeprefix("torch.")),
        device=place_of(str(device or "cpu")),
    )
    transform = huggingface.read_transform(folder) if pictures else None
    head = "causal" if pictures else kind or kind_of(given)
    return assemble_language(given, kind=head, tokenizer=read, origin=origin, transform=transform)


def load_answers(source: str, *, dtype: Any = None, device: str | None = None) -> LoadedModel:
    """The language model of `lm:FOLDER?answers=he,she` as a classifier over these words.

    See `LanguageModel.as_classifier`; that of `lm:FOLDER?generate=8` answers with what it
    generates, see `generating`. Raises ModelLoadError.
    """
    folder, asked = answers_of(source)
    model = load_language_model(folder, dtype=dtype, device=device)
    if isinstance(asked, int):
        return generating(model, asked, source)
    return model.as_classifier(asked, source)


def answers_of(source: str) -> tuple[str, tuple[str, ...] | int]:
    """The folder or hub id of an `lm:` source, and the words, or how many tokens are generated.

    Raises ModelLoadError.
    """
    folder, mark, query = source.removeprefix(PREFIX).partition("?")
    key, _, value = query.partition("=")
    words = tuple(word.strip() for word in value.split(","))
    if folder and mark and key == "answers" and all(words):
        return folder, words
    if folder and key == "generate" and value.isdecimal() and 0 < int(value[:5]) <= _MOST:
        return folder, int(value)
    raise ModelLoadError(f"cannot read {source!r:.80}; the form is {_FORM} (1 to {_MOST})")


def language_kind(source: str) -> LanguageKind | None:
    """The kind of language model at a directory or hub id; None: none, or none is known.

    Reads its config.json alone.
    """
    try:
        config = read_config(folder_of(source)[0])
    except ModelLoadError:  # whoever loads it says what is wrong
        return None
    if _has_pictures(config):
        return "causal"
    return _kind_of_config(config)


def _has_pictures(config: dict[str, Any]) -> bool:
    """Return whether a configuration is of a model that puts pictures in the place of a token.

    One that transformers knows as a language model too (Gemma 3) is loaded as that.
    """
    from transformers.models.auto import modeling_auto

    known = {*map(str, modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.values())}
    named = {*map(str, config.get("architectures") or ())}
    if any(kind_of_class(name) for name in named):
        return False
    return bool(known & named) and bool({"image_token_id", "image_token_index"} & {*config})


def _kind_of_config(config: dict[str, Any]) -> LanguageKind | None:
    names = config.get("architectures")
    known = names if isinstance(names, list) else []
    return next((kind for name in known if (kind := kind_of_class(str(name)))), None)
