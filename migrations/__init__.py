"""Migrations of the store's tables; run by `transexplain db upgrade`."""
