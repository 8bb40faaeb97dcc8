"""How a model decides, found without being told where to look: clusters of explanations.

Spectral relevance analysis (Lapuschkin et al. 2019, Nature Communications 10:1096) over the stored
relevance of a run, for pictures and for texts. `discover.py` begins it; `records.py` is what it
finds.
"""
