"""Forward passes of the perturbation methods; upper bounds, as equal masks run once.

All take every parameter and the T positions of an item; no target costs anything.
"""

from transexplain.methods.facts import Cost, Parameters


def occlusion(params: Parameters, positions: int) -> Cost:
    """Everything present, and one pass for each window; with strides, more than a picture has."""
    steps = -(-max(0, positions - params["window"]) // params["stride"])
    return Cost(forwards=2 + steps, target_backwards=0)


def lime(params: Parameters, positions: int) -> Cost:
    """Everything present, and one pass for each neighbour."""
    del positions
    return Cost(forwards=1 + params["samples"], target_backwards=0)


def shapley_sampling(params: Parameters, positions: int) -> Cost:
    """Everything, nothing, and what lies between them in each order."""
    return Cost(forwards=2 + params["samples"] * max(0, positions - 1), target_backwards=0)


def kernel_shap(params: Parameters, positions: int) -> Cost:
    """Everything, nothing, and each coalition, of which there may be fewer than samples."""
    samples = params["samples"] or default_samples(positions)
    most = max(0.0, 2.0 ** min(positions, 64) - 2)
    return Cost(forwards=2 + min(samples, most), target_backwards=0)


def default_samples(features: int) -> int:
    """Coalitions of kernel SHAP: as many as `shapley-sampling` asks for, but at least 512."""
    return max(512, 25 * features)
