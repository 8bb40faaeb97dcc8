"""KEDA's objects as JSON Schema: the fields that the chart uses, as the documentation names them.

https://keda.sh/docs/latest/reference/scaledobject-spec/,
https://keda.sh/docs/latest/concepts/authentication/ and
https://keda.sh/docs/latest/scalers/postgresql/. Numbers in the metadata of a trigger are strings.
A field that is not here is an error, and optional where its name ends in `_` below.
"""

from typing import Any


def _closed(**fields: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {name.removesuffix("_"): schema for name, schema in fields.items()},
        "required": [name for name in fields if not name.endswith("_")],
    }


def _list(schema: Any) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": schema}


_TEXT = {"type": "string", "minLength": 1}
_COUNT = {"type": "integer", "minimum": 0}
_OPEN = {"type": "object"}
_NUMBER_TEXT = {"type": "string", "pattern": r"^\d+(\.\d+)?$"}
_SOURCE = {"enum": ["connection", "host", "port", "userName", "password", "dbName", "sslmode"]}

_TRIGGER = _closed(
    type={"const": "postgresql"},
    name_=_TEXT,
    metadata=_closed(
        query=_TEXT, targetQueryValue=_NUMBER_TEXT, activationTargetQueryValue_=_NUMBER_TEXT
    ),
    metricType_={"enum": ["AverageValue", "Value", "Utilization"]},
    authenticationRef_=_closed(name=_TEXT),
)
_SPECS = {
    "ScaledObject": _closed(
        scaleTargetRef=_closed(name=_TEXT),
        pollingInterval_=_COUNT,
        cooldownPeriod_=_COUNT,
        minReplicaCount_=_COUNT,
        maxReplicaCount_={"type": "integer", "minimum": 1},
        fallback_=_closed(failureThreshold=_COUNT, replicas=_COUNT),
        advanced_=_closed(horizontalPodAutoscalerConfig_=_closed(behavior_=_OPEN)),
        triggers=_list(_TRIGGER),
    ),
    "TriggerAuthentication": _closed(
        secretTargetRef=_list(_closed(parameter=_SOURCE, name=_TEXT, key=_TEXT))
    ),
}


def keda_schema(kind: str) -> dict[str, Any]:
    """The schema of a whole object of this kind."""
    return _closed(
        apiVersion={"const": "keda.sh/v1alpha1"},
        kind={"const": kind},
        metadata=_closed(name=_TEXT, labels_=_OPEN),
        spec=_SPECS[kind],
    )
