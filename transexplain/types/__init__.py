"""The record types of the software: frozen, with units."""
