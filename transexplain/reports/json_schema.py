"""JSON Schemas of the JSON reports, made from the records that they are written from."""

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode


class _Written(GenerateJsonSchema):
    """Every field of a record is written, also one that has a default."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        return True


def schema_of(record: type, name: str, version: int, *, whole: bool = True) -> dict[str, Any]:
    """The schema (draft 2020-12) of `record`, a dataclass with a field `schema_version`.

    Keys that a later version adds are allowed; a document of another version is not valid. A
    record that is a part of a document (`whole` is False) has no version of its own.
    """
    mode: JsonSchemaMode = "serialization"
    found = TypeAdapter(record).json_schema(mode=mode, schema_generator=_Written)
    if not whole:
        return found
    found["properties"]["schema_version"] = {"const": version, "type": "integer"}
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "$id": f"urn:transexplain:{name}:{version}",
        **found,
    }
