"""Targets of language models: which tokens are explained, at which places."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from transexplain.errors import TargetError, did_you_mean
from transexplain.text.parsing import UnreadableError, read_json

AnswerKind = Literal["next", "token", "contrast", "continuation", "generate"]
_GENERATED = 16  #: tokens, unless a target says how many
_MOST = 4096
_WORDS = (
    "next (the token that the model predicts), next:<token>, contrast:<a>-<b>, "
    "continuation:<text>, continuation (the prompt's own) or generate:<number of tokens>"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerTarget:
    """What is explained of a language model, before a prompt is known."""

    spec: str  #: as requested
    kind: AnswerKind
    tokens: tuple[str, ...] = ()  #: of `token` and `contrast`
    text: str | None = None  #: of `continuation`; None: the prompt's own
    ids: tuple[int, ...] = ()  #: of `continuation`, where tokens are given in the place of a text
    count: int = _GENERATED  #: of `generate`
    exact: bool = False  #: texts begin as they are written, without a space before them


def parse_answer_target(spec: Any) -> AnswerTarget:
    """Read a target of a language model.

    In the short form a word follows the prompt after a space, where there is none yet. The mapping
    form, `{"next": " he"}`, `{"contrast": [" he", " she"]}`, takes texts as they are; there a
    continuation may be a list of token numbers. A token may be given by its number: `next:#318`.
    Raises TargetError.
    """
    if isinstance(spec, AnswerTarget):
        return spec
    text, kind, argument, exact = _parts(spec)
    if kind in ("next", "predicted") and argument is None:
        return AnswerTarget(spec=text, kind="next")
    if kind == "next" and isinstance(argument, str) and argument:
        return AnswerTarget(spec=text, kind="token", tokens=(argument,), exact=exact)
    if kind == "contrast" and argument is not None:
        return AnswerTarget(spec=text, kind="contrast", tokens=_pair(text, argument), exact=exact)
    if kind == "continuation":
        return _continuation(text, argument, exact=exact)
    if kind == "generate":
        return AnswerTarget(spec=text, kind="generate", count=_count(text, argument))
    hint = did_you_mean(kind, ("next", "contrast", "continuation", "generate")) or "."
    raise TargetError(f"unknown target {text!r}{hint} A target of a language model is {_WORDS}")


def _parts(spec: Any) -> tuple[str, str, Any, bool]:
    """The target as text, its first word, what follows, and whether texts are taken as they are."""
    if isinstance(spec, str) and spec.lstrip().startswith("{"):
        try:
            spec = read_json(spec)
        except UnreadableError as error:
            raise TargetError(f"target {spec[:80]!r} is not valid JSON: {error}") from None
    if isinstance(spec, Mapping):
        if len(spec) != 1:
            raise TargetError(
                f"target {dict(spec)!r:.80} must have exactly one key; it is {_WORDS}"
            )
        kind, argument = next(iter(spec.items()))
        return _spelled(kind, argument), str(kind), argument, True
    if not isinstance(spec, str):
        raise TargetError(f"a target cannot be {spec!r:.80}; it is {_WORDS}")
    kind, colon, argument = spec.partition(":")
    return spec, kind, argument if colon else None, False


def _spelled(kind: Any, argument: Any) -> str:
    if isinstance(argument, list | tuple):
        argument = "-".join(map(str, argument))
    return f"{kind}:{argument}"


def _pair(text: str, argument: Any) -> tuple[str, str]:
    given = argument.split("-") if isinstance(argument, str) else argument
    if not isinstance(given, list | tuple) or len(given) != 2 or not all(given):
        raise TargetError(
            f"target {text!r} does not name two tokens; it is contrast:<a>-<b>, or, where a token "
            'holds a hyphen, {"contrast": [" a", " b"]}'
        )
    return str(given[0]), str(given[1])


def _continuation(text: str, argument: Any, *, exact: bool) -> AnswerTarget:
    if argument is None:
        return AnswerTarget(spec=text, kind="continuation")
    if isinstance(argument, str) and argument:
        return AnswerTarget(spec=text, kind="continuation", text=argument, exact=exact)
    if (
        isinstance(argument, list | tuple)
        and argument
        and all(type(token) is int for token in argument)
    ):
        return AnswerTarget(spec=text, kind="continuation", ids=tuple(argument))
    raise TargetError(
        f"the continuation cannot be {argument!r:.80}; it is a text or a list of tokens"
    )


def _count(text: str, argument: Any) -> int:
    if argument is None:
        return _GENERATED
    digits = str(argument)
    if not digits.isdecimal() or len(digits) > 4 or not 1 <= int(digits) <= _MOST:
        raise TargetError(f"target {text!r}: the number of tokens is between 1 and {_MOST}")
    return int(digits)
