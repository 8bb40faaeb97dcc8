"""Every architecture that the engine is measured on, by name."""

from dataclasses import replace

from architectures_convolutional import CONVOLUTIONAL
from architectures_decoders import DECODERS, ENCODER_DECODERS
from architectures_hybrid import HYBRID
from architectures_image import IMAGE
from architectures_record import Architecture
from architectures_text import ENCODERS
from architectures_timm import TIMM

#: what the engine does not cover -> the operator that it names
_REFUSED = {
    "PhiMoE": "clamp",
    "Qwen3-Next": "linalg_solve_triangular",
    "Qwen3.5": "linalg_solve_triangular",
    "Reformer": "logsumexp",
    "timm Sequencer2D": "lstm",
}
_ALL = [*ENCODERS, *DECODERS, *ENCODER_DECODERS, *IMAGE, *CONVOLUTIONAL, *TIMM, *HYBRID]

ARCHITECTURES: dict[str, Architecture] = {
    one.name: replace(one, refused_for=_REFUSED.get(one.name)) for one in _ALL
}
assert len(ARCHITECTURES) == len(_ALL), "two architectures share a name"
assert _REFUSED.keys() <= ARCHITECTURES.keys()
