"""The version of this software, readable without importing the package."""

__version__ = "0.1.0"
