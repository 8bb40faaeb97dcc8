"""Extras: what few audits need. Tables name them; the core imports none of them.

An extra may need another: towers need language models, the demo and explainers that learn need
training.
"""
