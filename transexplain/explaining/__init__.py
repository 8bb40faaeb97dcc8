"""Items to attributions in batches: the loop under both `explain` and an audit's shard."""

from transexplain.explaining.explain_request import Explained, Request, Stopped
from transexplain.explaining.item_loop import explain_items

__all__ = ["Explained", "Request", "Stopped", "explain_items"]
