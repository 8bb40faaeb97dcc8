"""Finding shortcuts: clusters of a class's explanations, found without knowing where to look.

Spectral relevance analysis (Lapuschkin et al. 2019, Nature Communications 10:1096) over the stored
relevance of a run, for pictures and for texts. `discover_strategies` is the entry point.
"""
