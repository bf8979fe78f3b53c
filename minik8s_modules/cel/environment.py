"""What an expression may name: variables with their types. Functions are those of Kubernetes 1.32, everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from minik8s_modules.cel import types
from minik8s_modules.cel.types import Type

# names of types that are values themselves (cel-go, common/stdlib/standard.go, and Kubernetes' libraries)
TYPE_NAMES: dict[str, Type] = {
    "bool": types.BOOL,
    "bytes": types.BYTES,
    "double": types.DOUBLE,
    "int": types.INT,
    "list": types.list_of(types.DYN),
    "map": types.map_of(types.DYN, types.DYN),
    "null_type": types.NULL,
    "string": types.STRING,
    "type": types.TYPE,
    "uint": types.UINT,
    "net.IP": types.IP,
    "net.CIDR": types.CIDR,
    "optional_type": types.optional_of(types.DYN),
    "google.protobuf.Timestamp": types.TIMESTAMP,
    "google.protobuf.Duration": types.DURATION,
    "google.protobuf.NullValue": types.NULL,
}


@dataclass(frozen=True)
class Environment:
    """The variables of an expression; one of type ``dyn`` may be anything."""

    variables: Mapping[str, Type] = field(default_factory=dict)
