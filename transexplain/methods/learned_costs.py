"""What an explanation by a learned explainer costs, from the explainer's file."""

from transexplain.errors import ConfigurationError
from transexplain.learned.facts import read_facts
from transexplain.methods.facts import Cost, Parameters


def learned(params: Parameters, positions: int) -> Cost:
    """One forward and the explainer's own operations, whatever the targets."""
    del positions
    return Cost(forwards=read_facts(explainer_of(params)).forwards, target_backwards=0)


def explainer_of(params: Parameters) -> str:
    """The path of the explainer; raises ConfigurationError where none was given."""
    path = params.get("explainer")
    if path is None:
        raise ConfigurationError(
            "method 'learned' needs explainer=FILE, the explainer.safetensors that "
            "`transexplain train` writes for a model"
        )
    return str(path)
