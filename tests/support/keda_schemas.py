"""KEDA's objects as JSON Schema, from the fields that its documentation names.

https://keda.sh/docs/latest/reference/scaledobject-spec/,
https://keda.sh/docs/latest/concepts/authentication/ and
https://keda.sh/docs/latest/scalers/postgresql/. Numbers in the metadata of a trigger are strings.
"""

from typing import Any


def _closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": list(required),
    }


_TEXT = {"type": "string", "minLength": 1}
_COUNT = {"type": "integer", "minimum": 0}
_OPEN = {"type": "object"}
_NUMBER_TEXT = {"type": "string", "pattern": r"^\d+(\.\d+)?$"}
_SOURCE = {"enum": ["connection", "host", "port", "userName", "password", "dbName", "sslmode"]}

_POSTGRESQL = _closed(
    {
        "query": _TEXT,
        "targetQueryValue": _NUMBER_TEXT,
        "activationTargetQueryValue": _NUMBER_TEXT,
        "connectionFromEnv": _TEXT,
        "host": _TEXT,
        "port": _NUMBER_TEXT,
        "userName": _TEXT,
        "passwordFromEnv": _TEXT,
        "dbName": _TEXT,
        "sslmode": {"enum": ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]},
    },
    "query",
    "targetQueryValue",
)
_TRIGGER = _closed(
    {
        "type": {"const": "postgresql"},
        "name": _TEXT,
        "metadata": _POSTGRESQL,
        "metricType": {"enum": ["AverageValue", "Value", "Utilization"]},
        "useCachedMetrics": {"type": "boolean"},
        "authenticationRef": _closed(
            {
                "name": _TEXT,
                "kind": {"enum": ["TriggerAuthentication", "ClusterTriggerAuthentication"]},
            },
            "name",
        ),
    },
    "type",
    "metadata",
)
_SPECS = {
    "ScaledObject": _closed(
        {
            "scaleTargetRef": _closed(
                {
                    "apiVersion": _TEXT,
                    "kind": _TEXT,
                    "name": _TEXT,
                    "envSourceContainerName": _TEXT,
                },
                "name",
            ),
            "pollingInterval": _COUNT,
            "cooldownPeriod": _COUNT,
            "initialCooldownPeriod": _COUNT,
            "idleReplicaCount": {"const": 0},
            "minReplicaCount": _COUNT,
            "maxReplicaCount": {"type": "integer", "minimum": 1},
            "fallback": _closed(
                {
                    "failureThreshold": _COUNT,
                    "replicas": _COUNT,
                    "behavior": {
                        "enum": [
                            "static",
                            "currentReplicas",
                            "currentReplicasIfHigher",
                            "currentReplicasIfLower",
                        ]
                    },
                },
                "failureThreshold",
                "replicas",
            ),
            "advanced": _closed(
                {
                    "restoreToOriginalReplicaCount": {"type": "boolean"},
                    "horizontalPodAutoscalerConfig": _closed({"name": _TEXT, "behavior": _OPEN}),
                    "scalingModifiers": _OPEN,
                }
            ),
            "triggers": {"type": "array", "minItems": 1, "items": _TRIGGER},
        },
        "scaleTargetRef",
        "triggers",
    ),
    "TriggerAuthentication": _closed(
        {
            "secretTargetRef": {
                "type": "array",
                "minItems": 1,
                "items": _closed(
                    {"parameter": _SOURCE, "name": _TEXT, "key": _TEXT}, "parameter", "name", "key"
                ),
            }
        },
        "secretTargetRef",
    ),
}


def keda_schema(kind: str) -> dict[str, Any]:
    """The schema of a whole object of this kind."""
    return _closed(
        {
            "apiVersion": {"const": "keda.sh/v1alpha1"},
            "kind": {"const": kind},
            "metadata": _closed(
                {"name": _TEXT, "namespace": _TEXT, "labels": _OPEN, "annotations": _OPEN}, "name"
            ),
            "spec": _SPECS[kind],
        },
        "apiVersion",
        "kind",
        "metadata",
        "spec",
    )
