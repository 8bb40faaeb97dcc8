"""TransExplain: bulk audits of transformer classifiers by layer-wise relevance propagation."""

__version__ = "0.1.0"
