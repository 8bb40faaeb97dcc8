"""What the gradient methods cost for one item, from their parameters."""

from transexplain.methods.facts import Cost, Parameters


def saliency(params: Parameters, positions: int) -> Cost:
    """A forward for the logits; a forward and a backward for each target."""
    del params, positions
    return Cost(target_forwards=1)


def smoothgrad(params: Parameters, positions: int) -> Cost:
    """A forward for the logits; for a target a pass for every noisy copy."""
    del positions
    return _passes(params["samples"], forwards=1)


def integrated_gradients(params: Parameters, positions: int) -> Cost:
    """Forwards for the logits of item and baseline; for a target a pass for every step."""
    del positions
    return _passes(params["steps"], forwards=2 + _reading(params))


def gradient_shap(params: Parameters, positions: int) -> Cost:
    """A forward for the logits; for a target a pass for every sample."""
    del positions
    return _passes(params["samples"], forwards=1 + _reading(params))


def deeplift_shap(params: Parameters, positions: int) -> Cost:
    """Forwards for the logits of item and references; for a target both run once more."""
    del positions
    references = params["references"]
    return Cost(
        forwards=1 + references + _reading(params),
        target_forwards=2 * references,
        target_backwards=references,
    )


def _passes(number: int, *, forwards: int) -> Cost:
    return Cost(forwards=forwards, target_forwards=number, target_backwards=number)


def _reading(params: Parameters) -> int:
    """The forward that reads the input layer of a baseline made of other inputs."""
    return int(params["baseline"] != "zero")
