"""Whether a model can be explained: what a propagation meets in it, and what that costs."""

from transexplain.doctor.diagnosis import Diagnosis, Timing
from transexplain.doctor.examination import examine

__all__ = ["Diagnosis", "Timing", "examine"]
