"""The store: SQL is the truth; every SQL statement of the product lives in this package."""
