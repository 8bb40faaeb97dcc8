"""Explainers in an audit: found and named by their bytes, before anything else is loaded."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.spec import AuditSpec
from transexplain.errors import ConfigurationError
from transexplain.evaluations import Approximation, MethodSpec
from transexplain.learned.facts import as_parameters, read_facts
from transexplain.learned.planned import LEARNED
from transexplain.methods.learned_costs import explainer_of

if TYPE_CHECKING:
    from transexplain.models.base import LoadedModel


def with_explainers(spec: AuditSpec) -> AuditSpec:
    """The specification with absolute paths of its explainers, and their sha256.

    Raises ConfigurationError where method `learned` names no explainer, or a file that is not
    there, is no explainer, or has other bytes than `sha256` says.
    """
    changed: dict[str, Any] = {}
    if spec.method.name == LEARNED and spec.explain is None:
        params = _resolved(spec.method.params)
        changed["method"] = spec.method.model_copy(update={"params": params})
    if spec.explain is not None and spec.explain.method == LEARNED:
        params = _resolved(spec.explain.params)
        changed["explain"] = spec.explain.model_copy(update={"params": params})
    methods = spec.evaluation.methods
    if methods != "all" and any(one.name == LEARNED for one in methods):
        rows = tuple(
            one.model_copy(update={"params": _resolved(one.params)}) if one.name == LEARNED else one
            for one in methods
        )
        changed["evaluation"] = spec.evaluation.model_copy(update={"methods": rows})
    return spec.model_copy(update=changed)


def _resolved(params: Mapping[str, Any]) -> dict[str, Any]:
    where = explainer_of(params)
    read_facts(where)
    found, asked = as_parameters(where), params.get("sha256")
    if asked not in (None, found["sha256"]):
        raise ConfigurationError(
            f"the explainer {where} has sha256 {found['sha256'][:12]}, and {str(asked)[:12]} was "
            "asked for; name that file, or leave sha256 out to take this one"
        )
    return {**params, **found}


def approximation_of(method: MethodSpec) -> Approximation | None:
    """What a method approximates, by its explainer; None: it is not `learned`."""
    if method.name != LEARNED:
        return None
    facts = read_facts(explainer_of(method.params))
    told = facts.agreement
    return Approximation(
        teacher=facts.teacher.name,
        mode=facts.mode,
        items=told.items if told else 0,
        rank_correlation=told.rank_correlation if told else None,
        relative_error=told.relative_error if told else None,
        forwards=facts.forwards,
    )


def teacher_of(method: MethodSpec) -> MethodSpec:
    """The method that an explainer learned from; of any other method the default one."""
    if method.name != LEARNED:
        return MethodSpec()
    return read_facts(explainer_of(method.params)).teacher


def refuse_other_models(spec: AuditSpec, model: "LoadedModel") -> None:
    """Raise ConfigurationError where an explainer of the audit was trained for another model."""
    for method in _learned(spec):
        where = explainer_of(method.params)
        read_facts(where).refuse(digest=model.ref.digest, source=model.ref.source, where=where)


def _learned(spec: AuditSpec) -> Iterator[MethodSpec]:
    methods = [spec.explained_by]
    if spec.evaluation.methods != "all":
        methods += [MethodSpec(name=o.name, params=o.params) for o in spec.evaluation.methods]
    yield from (one for one in methods if one.name == LEARNED)
