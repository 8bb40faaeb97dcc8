"""The key that words are hashed with: from the environment, never stored; its fingerprint is."""

import hmac
from dataclasses import dataclass, field

from transexplain.errors import ConfigurationError
from transexplain.settings import secret

TEXT_KEY = "TRANSEXPLAIN_TEXT_KEY"
_FEWEST = 16  #: bytes
_DIGITS = 12  #: of a stored hash: 48 bits; two of a million words share one with 0.2 %
_FINGERPRINT = 16  #: digits of the key's fingerprint


@dataclass(frozen=True, slots=True)
class TextKey:
    """A secret of at least 16 bytes, and what it makes of texts."""

    _secret: bytes = field(repr=False)

    @classmethod
    def from_environment(cls, fingerprint: str = "") -> "TextKey":
        """The key of `TRANSEXPLAIN_TEXT_KEY`, or of the file in `TRANSEXPLAIN_TEXT_KEY_FILE`.

        Raises ConfigurationError where there is none, it is short, or it is not the one with this
        `fingerprint`; no message holds the key.
        """
        text = secret("TEXT_KEY")
        if text is None:
            raise ConfigurationError(
                f"store_text is hashed, but {TEXT_KEY} is not set; set it, or {TEXT_KEY}_FILE, to "
                f"a random secret of at least {_FEWEST} bytes, the same for every worker"
            )
        given = text.encode("utf-8", "surrogateescape")
        if len(given) < _FEWEST:
            raise ConfigurationError(
                f"{TEXT_KEY} has {len(given)} bytes; it must have at least {_FEWEST}. "
                "`openssl rand -hex 32` makes one"
            )
        key = cls(given)
        if fingerprint and not hmac.compare_digest(key.fingerprint, fingerprint):
            raise ConfigurationError(
                f"{TEXT_KEY} is not the key of this run: its fingerprint is {key.fingerprint}, "
                f"the plan has {fingerprint}. Set the key that the run was planned with"
            )
        return key

    @property
    def fingerprint(self) -> str:
        """Names the key without telling it."""
        return self._mac("fingerprint", "")[:_FINGERPRINT]

    def word(self, text: str) -> str:
        """12 hexadecimal digits, the same for the same word in upper or lower case."""
        return self._mac("word", text.lower())[:_DIGITS]

    def value(self, column: str, text: str) -> str:
        """12 hexadecimal digits of a value, which another column's value never shares by rule."""
        return self._mac(f"value of {column}", text)[:_DIGITS]

    def _mac(self, purpose: str, text: str) -> str:
        # a lone surrogate has no bytes in UTF-8; the purpose's length keeps the two parts apart
        message = f"{len(purpose)}:{purpose}{text}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._secret, message, "sha256").hex()
