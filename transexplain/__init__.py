"""TransExplain: bulk audits of transformer classifiers by layer-wise relevance propagation."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transexplain.registry import Registry
from transexplain.types import drawing  # which imports no numpy
from transexplain.version import __version__

if TYPE_CHECKING:
    from orchestrator.notebook_audit import AuditResult, audit
    from transexplain import render
    from transexplain.api import (
        evaluate,
        explain,
        explain_by_methods,
        explain_iter,
        load_model,
        wrap,
    )
    from transexplain.errors import TransExplainError
    from transexplain.extras.language.explain_language import (
        attribute_context,
        explain_answers,
        load_language_model,
    )
    from transexplain.extras.towers.similarity import explain_similarity, load_two_towers
    from transexplain.methods import add_method
    from transexplain.reports.attribution_frame import to_frame
    from transexplain.reports.attribution_plot import plot
    from transexplain.types.items import Attribution, Item, Ledger, PatchGrid, SimilarityAttribution
    from transexplain.types.prompts import AnswerAttribution, ContextAttribution, Prompt, Segment
    from transexplain.types.tokens import Token

_PUBLIC = {
    name: module
    for module, names in {
        "orchestrator.notebook_audit": "AuditResult audit",
        "transexplain.api": "evaluate explain explain_by_methods explain_iter load_model wrap",
        "transexplain.extras.language.explain_language": (
            "attribute_context explain_answers load_language_model"
        ),
        "transexplain.extras.towers.similarity": "explain_similarity load_two_towers",
        "transexplain.methods": "add_method",
        "transexplain.reports.attribution_plot": "plot",
        "transexplain.reports.attribution_frame": "to_frame",
        "transexplain.errors": "TransExplainError",
        "transexplain.types.items": (
            "Attribution Item Ledger PatchGrid SimilarityAttribution Token"
        ),
        "transexplain.types.prompts": "AnswerAttribution ContextAttribution Prompt Segment",
    }.items()
    for name in names.split()
}

drawing.hand_over(
    Registry(
        "drawing",
        {
            "html": "transexplain.reports.attribution_html:rich_html",
            "plot": "transexplain.reports.attribution_plot:plot",
        },
    ).load
)

__all__ = [
    "AnswerAttribution",
    "Attribution",
    "AuditResult",
    "ContextAttribution",
    "Item",
    "Ledger",
    "PatchGrid",
    "Prompt",
    "Segment",
    "SimilarityAttribution",
    "Token",
    "TransExplainError",
    "__version__",
    "add_method",
    "attribute_context",
    "audit",
    "evaluate",
    "explain",
    "explain_answers",
    "explain_by_methods",
    "explain_iter",
    "explain_similarity",
    "load_language_model",
    "load_model",
    "load_two_towers",
    "plot",
    "render",
    "to_frame",
    "wrap",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562): torch is not loaded before it is needed."""
    if name == "render":
        return import_module("transexplain.render")
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'transexplain' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, which completion shows."""
    return __all__
