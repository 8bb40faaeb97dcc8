"""Both inputs of an encoder-decoder as one input layer: the text, and what was answered so far."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from transexplain.errors import EngineError, ModelLoadError
from transexplain.extras.language.generation import (
    Chosen,
    TogetherGeneration,
    ends_of,
    generated,
    until_end,
)
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
        with _LOCK:
            view = self._answering.get((count, value))
            if view is None:
                view = replace(
                    self.reader,
                    classes=tuple(str(index) for index in range(2 * count)),
                    caller=replace(self._caller, value=value, totals=True),
                )
                self._answering[count, value] = view
            return view

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
        if ids[1][: len(ids[0])] != ids[0] or len(tokens) != 1 or tokens == [self._unknown]:
            raise ModelLoadError(
                f"the answer {word!r:.40} is no single token of {self.reader.ref.source}; "
                "choose a word that is"
            )
        return tokens[0]

    @property
    def _unknown(self) -> Any:
        return getattr(self.tokenizer, "unk_token_id", None)

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
    answers: Sequence[tuple[str, int]] = (),
    transform: Transform | None = None,
) -> LanguageModel:
    """A language model with its input layers found.

    `answers` are the classes of its `reader`: a name and a token each; default: a few tokens that
    show where the input layer is; `transform` reads the pictures of prompts. Raises
    ModelLoadError.
    """
    checked_tokenizer(tokenizer)
    two = kind == "encoder-decoder"
    pictures, seen = _one_place(module, kind, tokenizer, transform)
    embeddings = tables(module) if two else find_embeddings(module)
    vocabulary = int(getattr(next(iter(embeddings), None), "num_embeddings", 0))
    encoder = _encoder(seen, kind, tokenizer, embeddings, vocabulary)
    # without answers: a few tokens by their numbers, from all over the vocabulary
    named = list(answers) or [
        (str(token), token) for token in range(0, max(1, vocabulary), max(1, vocabulary // _PROBED))
    ]
    answered = tuple(token for _, token in named)
    start = _start(module) if two else 0
    base = Caller.of(seen, "text")
    own = {field.name: getattr(base, field.name) for field in fields(base)}
    caller = AnswerCaller(**own, kind=kind, answers=answered, mask=encoder.mask, start=start)
    encoder.takes = caller.takes
    sites = _sites(seen, kind, caller, embeddings, encoder)
    names = tuple(name for name, _ in named)
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


def _one_place(
    module: nn.Module, kind: LanguageKind, tokenizer: Any, transform: Transform | None
) -> tuple[PromptPictures | None, nn.Module]:
    """The reader of pictures, and a module in which all that is read passes one place."""
    if transform is not None:
        return with_pictures(module, tokenizer, transform)
    return None, TwoSides(module) if kind == "encoder-decoder" else module


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
