"""Audits that mix: a cheap method for every item, an exact one on a sample."""

from orchestrator.learned import teacher_of
from orchestrator.sections import ExplainSection
from orchestrator.spec import AuditSpec
from transexplain.errors import ConfigurationError
from transexplain.evaluations import ExactPlan, MethodSpec
from transexplain.learned.planned import LEARNED
from transexplain.methods import bound, unit_of


def exact_plan(spec: AuditSpec) -> ExactPlan | None:
    """What the exact method is asked for; None where the method explains alone.

    Raises ConfigurationError where a method is unknown or not in logits, or both are one.
    """
    asked = spec.explain
    if asked is None:
        return None
    cheap = spec.explained_by
    exact = _exact(asked, cheap)
    if exact.name == LEARNED:
        raise ConfigurationError(
            "explain.exact is 'learned', which approximates another method and can correct none; "
            "name the method that computes, such as lrp"
        )
    bound(exact)
    for role, method in (("method", cheap), ("exact", exact)):
        if unit_of(method.name) != "logits":
            raise ConfigurationError(
                f"explain.{role}: {method.name!r} measures {unit_of(method.name)}; a cheap method "
                "can be corrected by an exact one where both are in logits"
            )
    if cheap == exact:
        raise ConfigurationError(
            f"explain.method and explain.exact are both {exact.name!r}, so there is nothing to "
            f"correct; write `method: {exact.name}` instead"
        )
    return ExactPlan(method=exact, share=asked.exact_sample, seed=asked.seed)


def _exact(asked: ExplainSection, cheap: MethodSpec) -> MethodSpec:
    """The method that was named, else the one that the cheap method approximates."""
    if asked.exact is not None:
        return MethodSpec(name=asked.exact, params=asked.exact_params)
    usual = teacher_of(cheap)
    return MethodSpec(name=usual.name, params={**usual.params, **asked.exact_params})
