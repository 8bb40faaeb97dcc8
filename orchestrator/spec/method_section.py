"""The sections `method` and `explain`: the explanation of items, by one method or by two.

A trained explainer is a file. It is found and named by its bytes before anything else is loaded, so
that a plan names it.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Self

import typer
from pydantic import Field, JsonValue

from orchestrator.spec.spec_document import SpecSection, absolute_if_exists
from transexplain.errors import ConfigurationError
from transexplain.methods import bound, cost_of, facts_of, unit_of
from transexplain.methods.explainer_files import as_parameters, explainer_facts, is_learned
from transexplain.methods.method_table import explainer_of
from transexplain.types.scores import Approximation, ExactPlan, MethodSpec

MethodOption = Annotated[str | None, typer.Option("--method", help="explanation method")]


class MethodSection(SpecSection):
    """The explanation method, with its parameters."""

    shorthand: ClassVar[str] = "name"
    options: ClassVar[Mapping[str, str]] = {"method": "name"}

    name: str = Field(default="lrp", description="name of a method: docs/reference/methods.md")
    params: dict[str, JsonValue] = Field(
        default_factory=dict, description="parameters of the method, by name"
    )

    @property
    def planned(self) -> MethodSpec:
        """The method as a plan names it."""
        return MethodSpec(name=self.name, params=self.params)

    def absolute(self) -> Self:
        """The section with absolute paths of the files among its parameters."""
        return self.model_copy(update={"params": absolute_params(self.name, self.params)})

    def resolved(self) -> Self:
        """The section with the absolute path of its explainer, and the sha256 of its bytes."""
        return self.model_copy(update={"params": resolved_params(self.name, self.params)})


class ExplainSection(SpecSection):
    """A cheap method for every item, and an exact one on a sample that corrects it."""

    method: str = Field(description="explains every item; in logits")
    params: dict[str, JsonValue] = Field(default_factory=dict)
    exact: str | None = Field(
        default=None,
        description="explains the sample; in logits; default: what an explainer learned from, "
        "else lrp",
    )
    exact_params: dict[str, JsonValue] = Field(default_factory=dict)
    exact_sample: float = Field(
        gt=0, le=1, allow_inf_nan=False, description="share of the items that are drawn for it"
    )
    seed: int = Field(default=0, description="seed of the draw of `exact_sample`")

    @property
    def planned(self) -> MethodSpec:
        """The method that explains every item, as a plan names it."""
        return MethodSpec(name=self.method, params=self.params)

    def absolute(self) -> Self:
        """The section with absolute paths of the files among its parameters."""
        changed = {"params": absolute_params(self.method, self.params)}
        if self.exact is not None:
            changed["exact_params"] = absolute_params(self.exact, self.exact_params)
        return self.model_copy(update=changed)

    def resolved(self) -> Self:
        """The section with the absolute path of its explainer, and the sha256 of its bytes."""
        return self.model_copy(update={"params": resolved_params(self.method, self.params)})

    def exact_plan(self) -> ExactPlan:
        """The plan of the exact method.

        Raises ConfigurationError where a method is unknown or not in logits, or both are one.
        """
        if self.exact is not None:
            exact = MethodSpec(name=self.exact, params=self.exact_params)
        else:  # the method that the cheap one approximates
            usual = MethodSpec()
            if is_learned(self.method):
                usual = explainer_facts(self.planned).teacher
            exact = MethodSpec(name=usual.name, params={**usual.params, **self.exact_params})
        if is_learned(exact.name):
            raise ConfigurationError(
                "explain.exact is 'learned', which approximates another method and can correct "
                "none; name the method that computes, such as lrp"
            )
        bound(exact)
        for role, method in (("method", self.planned), ("exact", exact)):
            if unit_of(method.name) != "logits":
                raise ConfigurationError(
                    f"explain.{role}: {method.name!r} measures {unit_of(method.name)}; a cheap "
                    "method can be corrected by an exact one where both are in logits"
                )
        if self.planned == exact:
            raise ConfigurationError(
                f"explain.method and explain.exact are both {exact.name!r}, so there is nothing to "
                f"correct; write `method: {exact.name}` instead"
            )
        return ExactPlan(method=exact, share=self.exact_sample, seed=self.seed)


def absolute_params(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a method with absolute paths of the files that they name.

    A name that is no file here, such as a hub id, stays. Raises ConfigurationError for an unknown
    method.
    """
    files = facts_of(method).files
    return {
        name: absolute_if_exists(value) if name in files and isinstance(value, str) else value
        for name, value in params.items()
    }


def resolved_params(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with the absolute path of an explainer and its sha256; others as they are.

    Raises ConfigurationError where `learned` names no explainer, or a file that is not there, is
    no explainer, or has other bytes than `sha256` says.
    """
    if not is_learned(method):
        return dict(params)
    where = explainer_of(params)
    explainer_facts(MethodSpec(name=method, params=params))
    stored, digest = as_parameters(where), params.get("sha256")
    if digest not in (None, stored["sha256"]):
        raise ConfigurationError(
            f"the explainer {where} has sha256 {stored['sha256'][:12]}, and {str(digest)[:12]} was "
            "requested; name that file, or leave sha256 out to take this one"
        )
    return {**params, **stored}


def approximation_of(method: MethodSpec) -> Approximation | None:
    """The method that an explainer approximates; None: the method is not `learned`."""
    if not is_learned(method.name):
        return None
    facts = explainer_facts(method)
    measured = facts.agreement
    return Approximation(
        teacher=facts.teacher.name,
        mode=facts.mode,
        items=measured.items if measured else 0,
        rank_correlation=measured.rank_correlation if measured else None,
        relative_error=measured.relative_error if measured else None,
        forwards=facts.forwards,
    )


def method_warnings(method: str, *, grouped: bool) -> Iterator[str]:
    """Warnings about a method; `grouped`: groups of entities are compared by it."""
    facts = facts_of(method)
    if facts.reads_target == "no":
        yield (
            f"method {method!r} gives the same relevance for every class: what is "
            "listed for a class shows which items are in it, not what speaks for it"
        )
    elif facts.reads_target == "weakly":
        yield (
            f"method {method!r} depends formally on the class that is explained, but hardly "
            "in practice; read its class sensitivity in the report"
        )
    if grouped and facts.unit != "logits":
        yield (
            f"method {method!r} measures {facts.unit}, not logits: "
            "group differences are not in logits"
        )


def passes(
    method: MethodSpec, exact: ExactPlan | None, positions: int, targets: int
) -> tuple[float, float]:
    """Mean forward and backward passes for one item of T `positions` with all its targets."""
    forwards, backwards = cost_of(method, positions).of(targets)
    if exact is None:
        return forwards, backwards
    more = cost_of(exact.method, positions).of(targets)
    return forwards + exact.share * more[0], backwards + exact.share * more[1]
