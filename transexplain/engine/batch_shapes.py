"""The few shapes that batches come in where each shape has a trace of its own."""


def bucket_of(length: int, *, apart: int = 16) -> int:
    """The next length that batches are padded to: 16, 32, ... 128, then 32, 64, ... apart.

    With `apart=1` the next number of items that they are filled up to: 1, ... 8, 10, 12, ...
    """
    apart = max(apart, (1 << (length - 1).bit_length()) >> 3)
    return -(-length // apart) * apart


def power_of_two(number: int) -> int:
    """The largest power of two that is not above `number`."""
    return 1 << (number.bit_length() - 1)
