"""What the positions of a text are: characters, words and special tokens."""

from typing import Any

from transexplain.types import Token


def tokens_of(text: str, encoding: Any) -> tuple[Token, ...]:
    """One token per position of `encoding` (a `tokenizers.Encoding` of `text`), (T,).

    Offsets count characters (code points) of the original text, white space at either end of a
    token left out. A word ends where the tokenizer says so and at white space, so that
    tokenizers which never cut a text into words still give words.
    """
    tokens: list[Token] = []
    word, last_word, last_end = -1, None, 0
    for piece, span, special, tokenizer_word in zip(
        encoding.tokens,
        encoding.offsets,
        encoding.special_tokens_mask,
        encoding.word_ids,
        strict=True,
    ):
        if special:
            tokens.append(Token(text=piece, start=0, end=0, special=True))
            continue
        start, end = _trimmed(text, *span)
        apart = any(character.isspace() for character in text[last_end:start])
        if word < 0 or tokenizer_word != last_word or apart:
            word += 1
        last_word, last_end = tokenizer_word, end
        tokens.append(Token(text=text[start:end] or piece, start=start, end=end, word=word))
    return tuple(tokens)


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    cut = text[start:end]
    if not cut.strip():
        return start, end
    return end - len(cut.lstrip()), start + len(cut.rstrip())
