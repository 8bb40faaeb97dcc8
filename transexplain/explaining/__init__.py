"""Items to attributions in batches: the loop under both `explain` and an audit's shard."""

from transexplain.explaining.items import explain_items
from transexplain.explaining.request import Explained, Request, Stopped

__all__ = ["Explained", "Request", "Stopped", "explain_items"]
