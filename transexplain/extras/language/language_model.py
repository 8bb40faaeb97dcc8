"""Language models: their one input layer, and what they go on with, the likeliest token each time.

Prompts of one batch are padded on the left, and a model that reads positions from the mask gives
each what it gives it alone, but for rounding. Whether a model is so is measured; and a prompt
behind which two tokens are as likely is read again by itself, so that a batch changes no answer.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from transexplain.errors import EngineError, ModelLoadError
from transexplain.extras.language.picture_prompts import (
    PromptPictures,
    WordsAndPatches,
    reads_pictures,
    with_pictures,
    words_of,
)
from transexplain.extras.language.prompt_encoder import PICTURE, AnswerCaller, PromptEncoder, Value
from transexplain.models.assemble import Origin, checked_tokenizer, padding_of, ref_of
from transexplain.models.calling import Caller, eval_mode, logits_of
from transexplain.models.configs import LanguageKind, kind_of_class
from transexplain.models.image_encoder import Transform
from transexplain.models.input_layer import (
    FORWARD_ERRORS,
    Sites,
    find_embeddings,
    first_sites,
    text_sites,
)
from transexplain.models.invariance import tolerance_of
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.models.text_length import capacity

#: what makes of the ids so far (B, T) and the logits behind them (B, V) other logits
Chosen = Callable[[Tensor, Tensor], Tensor]
_ROWS = 16  #: prompts of a batch
_POSITIONS = 2048  #: of a batch, padding and answers with them
_STEPS = 3  #: tokens that a batch is tried on: one behind the prompts, others behind it
_LONGEST = 24  #: tokens of a prompt that a batch is tried on
_FORWARD_ERRORS = (TypeError, ValueError, RuntimeError, IndexError, AssertionError, AttributeError)


def generated(
    module: Any,
    ids: Tensor,
    count: int,
    *,
    mask: Tensor | None = None,
    more: Mapping[str, Tensor] | None = None,
    chosen: Chosen | None = None,
) -> Tensor:
    """(B, T + at most `count`) ids (B, T), or a decoder's own, with the likeliest tokens behind.

    Args:
        module: of transformers, one that generates.
        ids: of the prompts, padded on the left.
        count: tokens at most.
        mask: (B, T) 0 at padding; None: there is none.
        more: further inputs.
        chosen: changes logits before the likeliest token is taken.
    """
    with torch.no_grad(), eval_mode(module):
        tokens: Tensor = module.generate(
            ids,
            attention_mask=torch.ones_like(ids) if mask is None else mask,
            **(more or {}),
            logits_processor=[] if chosen is None else [chosen],
            generation_config=_greedy(module, count),
        )
    return tokens


def until_end(module: Any, answer: Sequence[int]) -> list[int]:
    """An answer without the token that ends it and what stands behind that."""
    ends = ends_of(module)
    stop = next((place for place, token in enumerate(answer) if token in ends), len(answer))
    return list(answer[:stop])


def ends_of(module: Any) -> set[int]:
    """The tokens that end a text."""
    own = getattr(module, "generation_config", None)
    end = getattr(own, "eos_token_id", None)
    end = getattr(module.config, "eos_token_id", None) if end is None else end
    return {end} if isinstance(end, int) else set(end or ())


def _greedy(module: Any, count: int) -> Any:
    """Of the model's own settings only what begins and ends a text: the likeliest token follows."""
    from transformers import GenerationConfig

    names = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
    own = getattr(module, "generation_config", None)
    kept: dict[str, Any] = {}
    for name in names:
        setting = getattr(own, name, None)
        kept[name] = getattr(module.config, name, None) if setting is None else setting
    if kept["pad_token_id"] is None:
        kept["pad_token_id"] = next(iter(ends_of(module)), 0)
    return GenerationConfig(do_sample=False, num_beams=1, max_new_tokens=count, **kept)


@dataclass(slots=True)
class TogetherGeneration:
    """Generates from the prompts of a causal model in batches, where that changes no answer."""

    module: nn.Module
    device: torch.device
    tolerance: float  #: how far a batch may move a logit, as a share of the largest
    _able: bool | None = None  #: None: not measured yet
    _read: int = 0  #: prompts that were read in batches
    _again: int = 0  #: of these, read again by themselves
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answers(self, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
        """At most `count` tokens behind each prompt, as each alone has them; ends left out."""
        answers: dict[int, list[int]] = {}
        for some in _batches([len(prompt) + count for prompt in prompts]):
            if len(some) > 1 and self._takes(prompts[some[0]]):
                answers |= self._together({place: prompts[place] for place in some}, count)
            for place in some:
                if place not in answers:
                    ids = torch.tensor([list(prompts[place])], device=self.device)
                    tokens = generated(self.module, ids, count)[0, ids.shape[1] :].tolist()
                    answers[place] = until_end(self.module, tokens)
        return [answers[place] for place in range(len(prompts))]

    def _together(self, prompts: Mapping[int, Sequence[int]], count: int) -> dict[int, list[int]]:
        """The answers of those prompts behind which no two tokens are as likely."""
        ids, mask = self._padded([*prompts.values()])
        near = _NearTokens(ids.shape[1], sorted(ends_of(self.module)), 2 * self.tolerance)
        try:
            made = generated(self.module, ids, count, mask=mask, chosen=near).tolist()
        except RuntimeError:  # such as memory that is too small for a batch
            return {}
        answers = dict(zip(prompts, made, strict=True))
        kept = {
            place: until_end(self.module, answers[place][ids.shape[1] :])
            for row, place in enumerate(prompts)
            if not near.rows[row]
        }
        self._read += len(prompts)
        self._again += len(prompts) - len(kept)
        return kept

    def _padded(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """The ids and the mask (B, T) of prompts that end together; padding repeats a token."""
        width = max(map(len, prompts))
        ids = [[prompt[0]] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        return torch.tensor(ids, device=self.device), torch.tensor(mask, device=self.device)

    def _takes(self, prompt: Sequence[int]) -> bool:
        """Whether batches change no logits, as measured, and save more than is read again."""
        with self._lock:
            if self._able is None:
                self._able = self._difference(list(prompt)[-_LONGEST:]) <= self.tolerance
        return self._able and (self._read < 2 * _ROWS or 3 * self._again <= self._read)

    def _difference(self, prompt: list[int]) -> float:
        """How far a longer prompt beside it moves the logits of a shorter one, as a share."""
        whole = (prompt * 4)[: max(4, len(prompt))]
        short = whole[: len(whole) // 2]
        try:
            alone, beside = (self._logits(rows, whole) for rows in ([short], [short, whole]))
        except _FORWARD_ERRORS:
            return float("inf")
        largest = float(torch.stack([alone, beside]).abs().max())
        return float((alone - beside).abs().max()) / largest if largest else 0.0

    def _logits(self, rows: list[list[int]], said: Sequence[int]) -> Tensor:
        """(steps, V) logits behind the first of some prompts that go on with what is `said`."""
        ids, mask = self._padded(rows)
        forced = _Forced(ids.shape[1], said)
        generated(self.module, ids, _STEPS, mask=mask, chosen=forced)
        return torch.stack(forced.seen)


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Places of prompts with their answers in batches, the longest first, of similar lengths."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place_: -lengths[place_]):
        positions = (len(batch) + 1) * (lengths[batch[0]] if batch else 0)
        if len(batch) == _ROWS or positions > _POSITIONS:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


class _NearTokens:
    """Notes the rows behind which two tokens are as likely before the row has ended."""

    def __init__(self, begun: int, ends: Sequence[int], share: float) -> None:
        self.rows: list[bool] = []
        self._begun, self._ends, self._share = begun, list(ends), share

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        """The logits as they are."""
        best = logits.topk(2).values
        scale = logits.masked_fill(~logits.isfinite(), 0.0).abs().amax(dim=1).clamp(min=1.0)
        near = best[:, 0] - best[:, 1] <= self._share * scale
        said = ids[:, self._begun :]
        for end in self._ends:
            near = near & ~(said == end).any(dim=1)
        ties = near.tolist()
        before = self.rows or [False] * len(ties)
        self.rows = [tied or other for tied, other in zip(before, ties, strict=True)]
        return logits


class _Forced:
    """Keeps the logits of the first row, and has every row go on with the same tokens."""

    def __init__(self, begun: int, said: Sequence[int]) -> None:
        self.seen: list[Tensor] = []
        self._begun, self._said = begun, list(said)

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        """Logits with one token far above the others."""
        self.seen.append(logits[0].double().cpu())
        forced = torch.zeros_like(logits)
        forced[:, self._said[ids.shape[1] - self._begun]] = 1.0
        return forced


class TwoSides(nn.Module):
    """An encoder-decoder whose word vectors of both sides pass through one place.

    `joined` sees (B, T + S, D): the decoder's T vectors, then the encoder's S, so padding is at
    the end. What it gives stands in the place of what the two embeddings give.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.config = model.config
        self.joined = nn.Identity()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Any:
        """The model's own output; its words (B, S) and (B, T) are embedded before it is called."""
        encoder, decoder = tables(self.model)
        words = [decoder(decoder_input_ids), encoder(input_ids)]
        length = decoder_input_ids.shape[1]
        both = self.joined(torch.cat(words, dim=1))
        sides = {"decoder": both[:, :length], "encoder": both[:, length:]}
        handles = [decoder.register_forward_hook(_giving([sides["decoder"]]))]
        if encoder is decoder:
            handles[0].remove()
            handles = [encoder.register_forward_hook(_giving([sides["encoder"], sides["decoder"]]))]
        else:
            handles.append(encoder.register_forward_hook(_giving([sides["encoder"]])))
        try:
            return self.model(
                input_ids=input_ids,
                attention_mask=attention_mask,
                decoder_input_ids=decoder_input_ids,
                use_cache=False,
            )
        finally:
            for handle in handles:
                handle.remove()


def _giving(values: list[Tensor]) -> Callable[..., Tensor]:
    """A hook that gives these in the order of the calls, and the last one from then on."""
    waiting = list(reversed(values))

    def hook(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
        given = waiting.pop() if len(waiting) > 1 else waiting[0]
        if given.shape != output.shape:
            raise ModelLoadError(
                f"a word embedding gave {tuple(output.shape)} where {tuple(given.shape)} was "
                "expected: this encoder-decoder does not embed each side once"
            )
        return given

    return hook


def tables(model: Any) -> tuple[nn.Module, nn.Module]:
    """The word embeddings of the encoder and of the decoder; ModelLoadError where they have none.

    Both may be the same module.
    """
    try:
        embeddings = [
            side().get_input_embeddings() for side in (model.get_encoder, model.get_decoder)
        ]
    except (AttributeError, NotImplementedError, TypeError) as error:
        raise ModelLoadError(
            f"{type(model).__name__} does not say what embeds the words of its encoder and of its "
            f"decoder: {error}"
        ) from error
    if not all(isinstance(embedding, nn.Module) for embedding in embeddings):
        raise ModelLoadError(f"{type(model).__name__} has no word embedding on one of its sides")
    return embeddings[0], embeddings[1]


_LOCK = threading.Lock()
_PROBED = 8  #: tokens whose logits show where the input layer is


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class LanguageModel:
    """A causal, masked or encoder-decoder language model; the module itself is never changed."""

    module: nn.Module  #: as it was given
    kind: LanguageKind
    reader: LoadedModel  #: a classifier over a few tokens at the next position
    vocabulary: int
    start: int | None = None  #: the token that a decoder begins with
    pictures: PromptPictures | None = None  #: how prompts have pictures; None: they have none
    _answering: dict[tuple[int, Value], LoadedModel] = field(
        default_factory=dict, init=False, repr=False
    )

    def __repr__(self) -> str:
        ref = self.reader.ref
        return (
            f"<LanguageModel {type(self.module).__name__} ({self.kind}), {self.vocabulary:,} "
            f"tokens, {ref.dtype} on {ref.device}, from {ref.source}>"
        )

    @property
    def parameters(self) -> int:
        """The number of its parameters."""
        return sum(parameter.numel() for parameter in self.module.parameters())

    @property
    def encoder(self) -> PromptEncoder:
        """The encoder of prompts."""
        encoder = self.reader.encoder
        assert isinstance(encoder, PromptEncoder)
        return encoder

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of transformers; None where the model was given without one."""
        return self.encoder.tokenizer

    def answering(self, count: int, value: Value) -> LoadedModel:
        """The model as a classifier over `count` (K) tokens that each item asks about.

        Its logits (B, 2K) are the K values, then the logs of the sums of exp at their positions.
        """
        view = self._answering.get((count, value))
        if view is None:
            classes = tuple(str(index) for index in range(2 * count))
            caller = replace(self._caller, value=value, totals=True)
            view = replace(self.reader, classes=classes, caller=caller)
        return self._answering.setdefault((count, value), view)  # another thread's, if it was first

    def as_classifier(self, words: Sequence[str], source: str | None = None) -> LoadedModel:
        """The model as a classifier whose classes are words that may come next, or fill its mask.

        Its logits (B, C) are those of these tokens alone. Everything that takes a classifier takes
        it: `explain`, audits. `source` is what it is recorded as.

        Raises ModelLoadError where there are fewer than two different words, or one that is
        several tokens.
        """
        if self.pictures is not None:
            raise ModelLoadError(f"{self!r} reads a picture in every prompt: it is no classifier")
        tokens = tuple(self._token(word) for word in words)
        if len(tokens) < 2 or len({*tokens}) < len(tokens):
            raise ModelLoadError(
                f"answers are two or more different words, not {list(words)!r:.80}"
            )
        ref = replace(self.reader.ref, classes=tuple(words))
        return replace(
            self.reader,
            classes=tuple(words),
            caller=replace(self._caller, answers=tokens),
            ref=ref if source is None else replace(ref, source=source),
        )

    def _token(self, word: str) -> int:
        """The one token of a word behind another word; at the beginning of a decoder's text."""
        if self.tokenizer is None:
            raise ModelLoadError("words are read by a tokenizer, and this model has none")
        before = "" if self.kind == "encoder-decoder" else "a"
        ids = [
            self.tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
            for text in (before, f"{before} {word}".strip())
        ]
        tokens = [int(token) for token in ids[1][len(ids[0]) :]]
        unknown = getattr(self.tokenizer, "unk_token_id", None)
        if ids[1][: len(ids[0])] != ids[0] or len(tokens) != 1 or tokens == [unknown]:
            raise ModelLoadError(
                f"the answer {word!r:.40} is no single token of {self.reader.ref.source}; "
                "choose a word that is"
            )
        return tokens[0]

    @property
    def _caller(self) -> AnswerCaller:
        caller = self.reader.caller
        assert isinstance(caller, AnswerCaller)
        return caller

    @torch.no_grad()
    def predicted(self, prompt: Encoded, position: int) -> int:
        """The likeliest token of the whole vocabulary at one output position of a prompt."""
        batch = self.reader.collate([prompt])
        with eval_mode(self.reader.module):
            logits = self._caller.next_logits(self.reader.module, batch.inputs, position)
        return int(logits[0].argmax())

    def generate(
        self,
        ids: Sequence[int],
        count: int,
        picture: torch.Tensor | None = None,
        chosen: Chosen | None = None,
    ) -> list[int]:
        """At most `count` tokens that the model goes on with, each the likeliest; the end token
        and what would stand behind it left out. `picture` (3, H, W) is that of the prompt, and
        `chosen` makes of the ids so far (1, T) and the logits behind them (1, V) other logits.

        Raises EngineError for a masked model, and one that cannot generate.
        """
        self._check_generates()
        device = self.encoder.device
        given = torch.tensor([list(ids)], device=device)
        more = {} if picture is None else {PICTURE: picture[None].to(device)}
        tokens = generated(self.module, given, count, more=more, chosen=chosen)[0].tolist()
        begun = 1 if self.kind == "encoder-decoder" else len(ids)
        return until_end(self.module, tokens[begun:])

    def generate_together(self, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
        """The tokens that `generate` gives behind each prompt of a causal model, many at once.

        Raises EngineError as it does.
        """
        self._check_generates()
        with _LOCK:
            together: TogetherGeneration = self.reader.measured.setdefault(
                "generation",
                TogetherGeneration(self.module, self.encoder.device, tolerance_of(self.reader)),
            )
        return together.answers(prompts, count)

    def _check_generates(self) -> None:
        if self.kind == "masked" or not callable(getattr(self.module, "generate", None)):
            raise EngineError(f"{self!r} generates no text")

    @property
    def ends(self) -> set[int]:
        """The tokens that end a text."""
        return ends_of(self.module)


def kind_of(module: Any) -> LanguageKind:
    """What kind of language model a module of transformers is; ModelLoadError where it is none."""
    kind = kind_of_class(type(module).__name__)
    if kind is None and reads_pictures(module):
        raise ModelLoadError(
            f"{type(module).__name__} reads pictures in prompts: give its tokenizer and its image "
            "processor, load_language_model(model, tokenizer, processor=...), or kind='causal' for "
            "prompts without"
        )
    if kind is None:
        raise ModelLoadError(
            f"{type(module).__name__} has no language-model head; load the model with "
            "AutoModelForCausalLM, AutoModelForSeq2SeqLM or AutoModelForMaskedLM, or say kind="
        )
    return kind


def assemble_language(
    module: nn.Module,
    *,
    kind: LanguageKind,
    tokenizer: Any | None,
    origin: Origin,
    transform: Transform | None = None,
) -> LanguageModel:
    """A language model with its input layers found.

    `transform` reads the pictures of prompts. Raises ModelLoadError.
    """
    checked_tokenizer(tokenizer)
    two = kind == "encoder-decoder"
    pictures: PromptPictures | None = None
    seen = TwoSides(module) if two and transform is None else module
    if transform is not None:
        pictures, seen = with_pictures(module, tokenizer, transform)
    embeddings = tables(module) if two else find_embeddings(module)
    vocabulary = int(getattr(next(iter(embeddings), None), "num_embeddings", 0))
    encoder = _encoder(seen, kind, tokenizer, embeddings, vocabulary)
    # a few tokens from all over the vocabulary show where the input layer is
    answers = tuple(range(0, max(1, vocabulary), max(1, vocabulary // _PROBED)))
    names = tuple(map(str, answers))
    start = _start(module) if two else 0
    base = Caller.of(seen, "text")
    own = {field.name: getattr(base, field.name) for field in fields(base)}
    caller = AnswerCaller(**own, kind=kind, answers=answers, mask=encoder.mask, start=start)
    encoder.takes = caller.takes
    sites = _sites(seen, kind, caller, embeddings, encoder)
    reader = LoadedModel(
        module=seen,
        modality="text",
        classes=names,
        ref=ref_of(module, "text", names, origin),
        encoder=encoder,
        caller=caller,
        located=lambda: sites,
    )
    return LanguageModel(
        module=module,
        kind=kind,
        reader=reader,
        vocabulary=vocabulary,
        start=caller.start if two else None,
        pictures=pictures,
    )


def _encoder(
    module: nn.Module,
    kind: LanguageKind,
    tokenizer: Any,
    embeddings: Sequence[nn.Module],
    vocabulary: int,
) -> PromptEncoder:
    first = next((parameter for part in embeddings for parameter in part.parameters()), None)
    encoder = PromptEncoder(
        tokenizer,
        limit=capacity(words_of(module), tokenizer),
        usual=None,
        padding=padding_of(module, tokenizer),
        vocabulary=vocabulary or None,
        device=torch.device("cpu") if first is None else first.device,
        takes=lambda name: True,
    )
    encoder.kind = kind
    if kind == "masked":
        encoder.mask = _mask(module, tokenizer)
    return encoder


def _mask(module: nn.Module, tokenizer: Any) -> int:
    mask_id = getattr(tokenizer, "mask_token_id", None)
    if mask_id is None:
        mask_id = getattr(getattr(module, "config", None), "mask_token_id", None)
    if not isinstance(mask_id, int):
        raise ModelLoadError(
            f"nothing says which token the masked model {type(module).__name__} fills in: give a "
            "tokenizer with a mask token"
        )
    return mask_id


def _start(module: Any) -> int:
    """The token that a decoder begins with."""
    places = (getattr(module, "generation_config", None), module.config)
    for name in ("decoder_start_token_id", "bos_token_id"):
        for place in places:
            value = getattr(place, name, None)
            if isinstance(value, int):
                return value
    raise ModelLoadError(
        f"the configuration of {type(module).__name__} has no decoder_start_token_id, which a "
        "decoder begins with"
    )


def _sites(
    module: nn.Module,
    kind: LanguageKind,
    caller: AnswerCaller,
    embeddings: tuple[nn.Module, ...],
    encoder: PromptEncoder,
) -> Sites:
    """The input layers; ModelLoadError where the model cannot be run."""
    if isinstance(module, TwoSides | WordsAndPatches):
        return Sites(block=None, embeddings=(module.joined,))
    rows = encoder.vocabulary or 16
    row = [(rows // 2 + step) % rows for step in range(5)]
    if kind == "masked" and encoder.mask is not None:
        row[-2] = encoder.mask
    ids = torch.tensor([row], device=encoder.device)
    inputs = {caller.main: ids, "attention_mask": torch.ones_like(ids)}
    try:
        logits_of(module, caller, inputs)
        sites = text_sites(module, caller, embeddings, inputs)
    except (EngineError, *FORWARD_ERRORS) as error:
        raise ModelLoadError(f"{type(module).__name__} fails on a short prompt: {error}") from error
    return sites or first_sites(module, embeddings)
