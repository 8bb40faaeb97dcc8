"""Scripts that print figures; compare ratios within one run, machines are noisy."""
