"""Fuzzing of every way into the software; see README.md."""
