"""Training of classifiers: staged unfreezing, checkpoints that resume to the bit, curves."""

from transexplain.registry import Registry

#: what trains an explainer of the classifier that is trained here, by mode
EXPLAINERS = Registry(
    "mode of an explainer",
    {
        "separate": "transexplain.extras.learned.explainer_training:train_explainer",
        "joint": "transexplain.extras.learned.explainer_training:joint_objective",
    },
)
