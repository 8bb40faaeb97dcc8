"""How relevance moves through a model: operators and rules, no model family (torch only)."""
