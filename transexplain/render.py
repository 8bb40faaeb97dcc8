"""Pictures and pages of single attributions: what `explain` shows."""

from transexplain.reports.heatmap import overlay
from transexplain.reports.tokens import page as html
from transexplain.reports.tokens import token_ansi as ansi

__all__ = ["ansi", "html", "overlay"]
