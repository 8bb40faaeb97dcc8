"""What becomes of texts that a model cannot read at once, in the words of a specification."""

from typing import Literal, get_args

from transexplain.errors import ConfigurationError

LongTexts = Literal["truncate", "window", "error"]
Join = Literal["mean", "sum"]


def check_long_texts(
    long_text: str,
    *,
    max_length: int | None = None,
    window: int | None = None,
    stride: int | None = None,
    join: str = "mean",
) -> None:
    """Raise ConfigurationError for parameters of long texts that contradict each other."""
    for key, word, known in (("long_text", long_text, LongTexts), ("long_text_join", join, Join)):
        if word not in get_args(known):
            raise ConfigurationError(f"{key}={word!r} is none of {', '.join(get_args(known))}")
    given = {"window": window, "stride": stride, "long_text_join": None if join == "mean" else join}
    for name, value in given.items():
        if value is not None and long_text != "window":
            raise ConfigurationError(
                f'{name}={value} is for long_text="window", but long_text is "{long_text}"'
            )
        if isinstance(value, int) and value < 1:
            raise ConfigurationError(f"{name}={value} must be at least 1")
    if window is not None and max_length is not None:
        raise ConfigurationError(
            f"window={window} and max_length={max_length} both say how many positions are read at "
            "once; give one of them"
        )
