"""The gate: a run checked against a policy, rule by rule."""
