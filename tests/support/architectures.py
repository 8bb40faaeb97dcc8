"""Every architecture that the engine is measured on, by name."""

from architectures_convolutional import CONVOLUTIONAL
from architectures_decoders import DECODERS, ENCODER_DECODERS
from architectures_hybrid import HYBRID
from architectures_image import IMAGE
from architectures_record import Architecture
from architectures_text import ENCODERS
from architectures_timm import TIMM

_ALL = [*ENCODERS, *DECODERS, *ENCODER_DECODERS, *IMAGE, *CONVOLUTIONAL, *TIMM, *HYBRID]

ARCHITECTURES: dict[str, Architecture] = {one.name: one for one in _ALL}
assert len(ARCHITECTURES) == len(_ALL), "two architectures share a name"
