"""How many positions a text model takes."""

from typing import Any

from torch import nn

from transexplain.errors import ModelLoadError

#: tokenizers without a limit say 10^30
SANE = 10_000_000
_CONFIG_NAMES = ("max_position_embeddings", "n_positions", "max_sequence_length")


def capacity(module: nn.Module, tokenizer: Any | None) -> int | None:
    """Positions (special ones included) that `module` and `tokenizer` take; None: any number.

    Raises ModelLoadError where the tokenizer's limit is no number.
    """
    tables = [
        _rows(table)
        for name, table in module.named_modules()
        if isinstance(table, nn.Embedding) and _is_position_table(name)
    ]
    # relative and rotary positions have no table, only what the model was trained for
    bounds = tables or _configured(module)
    longest = 0 if tokenizer is None else tokenizer.model_max_length
    if not isinstance(longest, int | float):
        raise ModelLoadError(
            f"tokenizer_config.json: model_max_length is {longest!r:.80}, which is no number"
        )
    if 0 < longest < SANE:
        bounds.append(int(longest))
    return min(bounds, default=None)


def saved_truncation(tokenizer: Any) -> int | None:
    """Positions that the tokenizer's own file cuts texts at; None where it does not say.

    Only for a tokenizer fresh from its file: calling one changes this setting.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    length = (getattr(backend, "truncation", None) or {}).get("max_length")
    special = tokenizer.num_special_tokens_to_add() if length is not None else 0
    return int(length) if length is not None and length > special else None


def _is_position_table(name: str) -> bool:
    last = name.rpartition(".")[2]
    return last in ("wpe", "embed_positions", "position_embeddings", "position_embedding")


def _rows(table: nn.Embedding) -> int:
    rows = table.num_embeddings
    if table.padding_idx is not None:
        return rows - table.padding_idx - 1  # RoBERTa counts positions from padding_idx + 1
    offset = getattr(table, "offset", 0)  # BART and OPT keep the first rows for padding
    return rows - offset if isinstance(offset, int) else rows


def _configured(module: nn.Module) -> list[int]:
    config = getattr(module, "config", None)
    found = (getattr(config, name, None) for name in _CONFIG_NAMES)
    return [value for value in found if isinstance(value, int) and 0 < value < SANE][:1]
