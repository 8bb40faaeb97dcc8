"""Executors: workers in this process, its children, on a queue, on Slurm or on Ray."""
