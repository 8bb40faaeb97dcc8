"""The version of this software, where every module can read it without importing the package."""

__version__ = "0.1.0"
