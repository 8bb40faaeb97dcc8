"""Trainings as a person writes them: specification, presets, plan."""
