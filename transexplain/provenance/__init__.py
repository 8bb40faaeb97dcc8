"""Provenance: manifests of what a run was made from, and the verification of a run."""
