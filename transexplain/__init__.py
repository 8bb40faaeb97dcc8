"""TransExplain: bulk audits of transformer classifiers by layer-wise relevance propagation."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transexplain.version import __version__

if TYPE_CHECKING:
    from transexplain import render
    from transexplain.api import evaluate, explain, explain_iter, load_model, wrap
    from transexplain.errors import TransExplainError
    from transexplain.explaining.by_methods import explain_by_methods
    from transexplain.types.items import Attribution, Item, Ledger, PatchGrid, Token

_PUBLIC = {
    "evaluate": "transexplain.api",
    "explain": "transexplain.api",
    "explain_by_methods": "transexplain.explaining.by_methods",
    "explain_iter": "transexplain.api",
    "load_model": "transexplain.api",
    "wrap": "transexplain.api",
    "TransExplainError": "transexplain.errors",
    "Attribution": "transexplain.types.items",
    "Item": "transexplain.types.items",
    "Ledger": "transexplain.types.items",
    "PatchGrid": "transexplain.types.items",
    "Token": "transexplain.types.items",
}

__all__ = [
    "Attribution",
    "Item",
    "Ledger",
    "PatchGrid",
    "Token",
    "TransExplainError",
    "__version__",
    "evaluate",
    "explain",
    "explain_by_methods",
    "explain_iter",
    "load_model",
    "render",
    "wrap",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562): torch is not loaded before it is needed."""
    if name == "render":
        return import_module("transexplain.render")
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'transexplain' has no attribute {name!r}")
