"""The functions of Kubernetes 1.32's CEL environment with their types (apiserver, pkg/cel/environment/base.go).

One line an overload: its name in cel-go, ``=``, how it is called (``receiver.name(…)`` or ``name(…)``), the result.
Capital letters are type parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from minik8s_modules.cel import types
from minik8s_modules.cel.types import Type


@dataclass(frozen=True)
class Overload:
    """One form of a function; a member's first parameter is its receiver."""

    id: str
    function: str
    member: bool
    params: tuple[Type, ...]
    result: Type


_OPERATORS = """
conditional = _?_:_(bool, A, A) -> A
logical_and = _&&_(bool, bool) -> bool
logical_or = _||_(bool, bool) -> bool
logical_not = !_(bool) -> bool
equals = _==_(A, A) -> bool
not_equals = _!=_(A, A) -> bool
add_bytes = _+_(bytes, bytes) -> bytes
add_double = _+_(double, double) -> double
add_duration_duration = _+_(duration, duration) -> duration
add_duration_timestamp = _+_(duration, timestamp) -> timestamp
add_timestamp_duration = _+_(timestamp, duration) -> timestamp
add_int64 = _+_(int, int) -> int
add_list = _+_(list(A), list(A)) -> list(A)
add_string = _+_(string, string) -> string
add_uint64 = _+_(uint, uint) -> uint
divide_double = _/_(double, double) -> double
divide_int64 = _/_(int, int) -> int
divide_uint64 = _/_(uint, uint) -> uint
modulo_int64 = _%_(int, int) -> int
modulo_uint64 = _%_(uint, uint) -> uint
multiply_double = _*_(double, double) -> double
multiply_int64 = _*_(int, int) -> int
multiply_uint64 = _*_(uint, uint) -> uint
negate_double = -_(double) -> double
negate_int64 = -_(int) -> int
subtract_double = _-_(double, double) -> double
subtract_duration_duration = _-_(duration, duration) -> duration
subtract_int64 = _-_(int, int) -> int
subtract_timestamp_duration = _-_(timestamp, duration) -> timestamp
subtract_timestamp_timestamp = _-_(timestamp, timestamp) -> duration
subtract_uint64 = _-_(uint, uint) -> uint
index_list = _[_](list(A), int) -> A
index_map = _[_](map(A, B), A) -> B
optional_list_index_int = _[_](optional(list(V)), int) -> optional(V)
optional_map_index_value = _[_](optional(map(K, V)), K) -> optional(V)
list_optindex_optional_int = _[?_](list(V), int) -> optional(V)
optional_list_optindex_optional_int = _[?_](optional(list(V)), int) -> optional(V)
map_optindex_optional_value = _[?_](map(K, V), K) -> optional(V)
optional_map_optindex_optional_value = _[?_](optional(map(K, V)), K) -> optional(V)
in_list = @in(A, list(A)) -> bool
in_map = @in(A, map(A, B)) -> bool
"""
_STANDARD = """
size_bytes = size(bytes) -> int
bytes_size = bytes.size() -> int
size_list = size(list(A)) -> int
list_size = list(A).size() -> int
size_map = size(map(A, B)) -> int
map_size = map(A, B).size() -> int
size_string = size(string) -> int
string_size = string.size() -> int
type = type(A) -> type(A)
bool_to_bool = bool(bool) -> bool
string_to_bool = bool(string) -> bool
bytes_to_bytes = bytes(bytes) -> bytes
string_to_bytes = bytes(string) -> bytes
double_to_double = double(double) -> double
int64_to_double = double(int) -> double
string_to_double = double(string) -> double
uint64_to_double = double(uint) -> double
duration_to_duration = duration(duration) -> duration
int64_to_duration = duration(int) -> duration
string_to_duration = duration(string) -> duration
to_dyn = dyn(A) -> dyn
int64_to_int64 = int(int) -> int
double_to_int64 = int(double) -> int
duration_to_int64 = int(duration) -> int
string_to_int64 = int(string) -> int
timestamp_to_int64 = int(timestamp) -> int
uint64_to_int64 = int(uint) -> int
string_to_string = string(string) -> string
bool_to_string = string(bool) -> string
bytes_to_string = string(bytes) -> string
double_to_string = string(double) -> string
duration_to_string = string(duration) -> string
int64_to_string = string(int) -> string
timestamp_to_string = string(timestamp) -> string
uint64_to_string = string(uint) -> string
ip_to_string = string(IP) -> string
cidr_to_string = string(CIDR) -> string
timestamp_to_timestamp = timestamp(timestamp) -> timestamp
int64_to_timestamp = timestamp(int) -> timestamp
string_to_timestamp = timestamp(string) -> timestamp
uint64_to_uint64 = uint(uint) -> uint
double_to_uint64 = uint(double) -> uint
int64_to_uint64 = uint(int) -> uint
string_to_uint64 = uint(string) -> uint
contains_string = string.contains(string) -> bool
ends_with_string = string.endsWith(string) -> bool
starts_with_string = string.startsWith(string) -> bool
matches = matches(string, string) -> bool
matches_string = string.matches(string) -> bool
duration_to_hours = duration.getHours() -> int
duration_to_minutes = duration.getMinutes() -> int
duration_to_seconds = duration.getSeconds() -> int
duration_to_milliseconds = duration.getMilliseconds() -> int
optional_of = optional.of(V) -> optional(V)
optional_ofNonZeroValue = optional.ofNonZeroValue(V) -> optional(V)
optional_none = optional.none() -> optional(V)
optional_value = optional(V).value() -> V
optional_hasValue = optional(V).hasValue() -> bool
optional_or_optional = optional(V).or(optional(V)) -> optional(V)
optional_orValue_value = optional(V).orValue(V) -> V
"""
_STRINGS = """
string_char_at_int = string.charAt(int) -> string
string_index_of_string = string.indexOf(string) -> int
string_index_of_string_int = string.indexOf(string, int) -> int
string_last_index_of_string = string.lastIndexOf(string) -> int
string_last_index_of_string_int = string.lastIndexOf(string, int) -> int
string_lower_ascii = string.lowerAscii() -> string
string_upper_ascii = string.upperAscii() -> string
string_replace_string_string = string.replace(string, string) -> string
string_replace_string_string_int = string.replace(string, string, int) -> string
string_split_string = string.split(string) -> list(string)
string_split_string_int = string.split(string, int) -> list(string)
string_substring_int = string.substring(int) -> string
string_substring_int_int = string.substring(int, int) -> string
string_trim = string.trim() -> string
string_format = string.format(list(dyn)) -> string
strings_quote = strings.quote(string) -> string
list_join = list(string).join() -> string
list_join_string = list(string).join(string) -> string
string_find_string = string.find(string) -> string
string_find_all_string = string.findAll(string) -> list(string)
string_find_all_string_int = string.findAll(string, int) -> list(string)
"""
_LISTS = """
list_a_index_of_int = list(A).indexOf(A) -> int
list_a_last_index_of_int = list(A).lastIndexOf(A) -> int
list_sets_contains_list = sets.contains(list(T), list(T)) -> bool
list_sets_equivalent_list = sets.equivalent(list(T), list(T)) -> bool
list_sets_intersects_list = sets.intersects(list(T), list(T)) -> bool
"""
_KUBERNETES = """
string_to_url = url(string) -> URL
is_url_string = isURL(string) -> bool
url_get_scheme = URL.getScheme() -> string
url_get_host = URL.getHost() -> string
url_get_hostname = URL.getHostname() -> string
url_get_port = URL.getPort() -> string
url_get_escaped_path = URL.getEscapedPath() -> string
url_get_query = URL.getQuery() -> map(string, list(string))
string_to_quantity = quantity(string) -> Quantity
is_quantity_string = isQuantity(string) -> bool
quantity_sign = sign(Quantity) -> int
quantity_is_greater_than = Quantity.isGreaterThan(Quantity) -> bool
quantity_is_less_than = Quantity.isLessThan(Quantity) -> bool
quantity_compare_to = Quantity.compareTo(Quantity) -> int
quantity_get_float = Quantity.asApproximateFloat() -> double
quantity_get_int = Quantity.asInteger() -> int
quantity_is_integer = Quantity.isInteger() -> bool
quantity_add = Quantity.add(Quantity) -> Quantity
quantity_add_int = Quantity.add(int) -> Quantity
quantity_sub = Quantity.sub(Quantity) -> Quantity
quantity_sub_int = Quantity.sub(int) -> Quantity
string_to_ip = ip(string) -> IP
ip_family = IP.family() -> int
ip_is_canonical = ip.isCanonical(string) -> bool
ip_is_unspecified = IP.isUnspecified() -> bool
ip_is_loopback = IP.isLoopback() -> bool
ip_is_link_local_multicast = IP.isLinkLocalMulticast() -> bool
ip_is_link_local_unicast = IP.isLinkLocalUnicast() -> bool
ip_is_global_unicast = IP.isGlobalUnicast() -> bool
is_ip = isIP(string) -> bool
string_to_cidr = cidr(string) -> CIDR
cidr_contains_ip_string = CIDR.containsIP(string) -> bool
cidr_contains_ip_ip = CIDR.containsIP(IP) -> bool
cidr_contains_cidr_string = CIDR.containsCIDR(string) -> bool
cidr_contains_cidr = CIDR.containsCIDR(CIDR) -> bool
cidr_ip = CIDR.ip() -> IP
cidr_prefix_length = CIDR.prefixLength() -> int
cidr_masked = CIDR.masked() -> CIDR
is_cidr = isCIDR(string) -> bool
format-named = format.named(string) -> optional(Format)
format-validate = Format.validate(string) -> optional(list(string))
authorizer_path = Authorizer.path(string) -> PathCheck
authorizer_group = Authorizer.group(string) -> GroupCheck
authorizer_serviceaccount = Authorizer.serviceAccount(string, string) -> Authorizer
groupcheck_resource = GroupCheck.resource(string) -> ResourceCheck
resourcecheck_subresource = ResourceCheck.subresource(string) -> ResourceCheck
resourcecheck_namespace = ResourceCheck.namespace(string) -> ResourceCheck
resourcecheck_name = ResourceCheck.name(string) -> ResourceCheck
authorizer_fieldselector = ResourceCheck.fieldSelector(string) -> ResourceCheck
authorizer_labelselector = ResourceCheck.labelSelector(string) -> ResourceCheck
pathcheck_check = PathCheck.check(string) -> Decision
resourcecheck_check = ResourceCheck.check(string) -> Decision
decision_errored = Decision.errored() -> bool
decision_error = Decision.error() -> string
decision_allowed = Decision.allowed() -> bool
decision_reason = Decision.reason() -> string
"""
FORMATS = (
    "dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "dns1123LabelPrefix",
    "dns1123SubdomainPrefix", "dns1035LabelPrefix", "labelValue", "uri", "uuid", "byte", "date", "datetime",
)  # fmt: skip
COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
SUMMABLE = ("int", "uint", "double", "duration")
_ACCESSORS = {
    "getFullYear": "year", "getMonth": "month", "getDayOfYear": "day_of_year", "getDayOfMonth": "day_of_month",
    "getDate": "day_of_month_1_based", "getDayOfWeek": "day_of_week", "getHours": "hours", "getMinutes": "minutes",
    "getSeconds": "seconds", "getMilliseconds": "milliseconds",
}  # fmt: skip
_COMPARISONS = {"_<_": "less", "_<=_": "less_equals", "_>_": "greater", "_>=_": "greater_equals"}
_NAMES = {"int": "int64", "uint": "uint64"}
_MIXED = (
    ("int", "double"),
    ("int", "uint"),
    ("uint", "double"),
    ("uint", "int"),
    ("double", "int"),
    ("double", "uint"),
)

NAMED = {
    "Quantity": types.QUANTITY, "URL": types.URL, "IP": types.IP, "CIDR": types.CIDR, "Format": types.FORMAT,
    "Authorizer": types.AUTHORIZER, "PathCheck": types.PATH_CHECK, "GroupCheck": types.GROUP_CHECK,
    "ResourceCheck": types.RESOURCE_CHECK, "Decision": types.DECISION,
}  # fmt: skip
NAMESPACES = frozenset({"optional", "sets", "strings", "ip", "format"})


def _comparisons() -> list[str]:
    lines = []
    for operator, name in _COMPARISONS.items():
        lines += [f"{name}_{_NAMES.get(kind, kind)} = {operator}({kind}, {kind}) -> bool" for kind in COMPARABLE]
        lines += [f"{name}_{_NAMES.get(a, a)}_{_NAMES.get(b, b)} = {operator}({a}, {b}) -> bool" for a, b in _MIXED]
    return lines


def _templates() -> list[str]:
    lines = [f"list_{kind}_is_sorted_bool = list({kind}).isSorted() -> bool" for kind in COMPARABLE]
    lines += [
        f"list_{kind}_{name}_{kind} = list({kind}).{name}() -> {kind}" for name in ("min", "max") for kind in COMPARABLE
    ]
    lines += [f"list_{kind}_sum_{kind} = list({kind}).sum() -> {kind}" for kind in SUMMABLE]
    lines += [f"format.{name} = format.{name}() -> Format" for name in FORMATS]
    for name, part in _ACCESSORS.items():
        lines.append(f"timestamp_to_{part} = timestamp.{name}() -> int")
        lines.append(f"timestamp_to_{part}_with_tz = timestamp.{name}(string) -> int")
    return lines


@cache
def functions() -> dict[str, list[Overload]]:
    """Return the overloads of every function by its name (``ip.isCanonical`` for one in a namespace)."""
    text = _OPERATORS + _STANDARD + _STRINGS + _LISTS + _KUBERNETES
    found: dict[str, list[Overload]] = {}
    for line in [line for line in text.splitlines() if line] + _comparisons() + _templates():
        overload = _read(line)
        found.setdefault(overload.function, []).append(overload)
    return found


def _read(line: str) -> Overload:
    name, _, rest = line.partition(" = ")
    call, _, result = rest.partition(" -> ")
    opening = _opening(call)
    receiver, dot, short = call[:opening].rpartition(".")
    arguments = tuple(_types(call[opening + 1 : -1]))
    if dot and receiver not in NAMESPACES:
        return Overload(name, short, member=True, params=(*_types(receiver), *arguments), result=_one(result))
    return Overload(name, call[:opening], member=False, params=arguments, result=_one(result))


def _opening(call: str) -> int:
    """Return where the bracket opens that the last letter closes."""
    depth = 0
    for at in range(len(call) - 1, -1, -1):
        depth += (call[at] == ")") - (call[at] == "(")
        if depth == 0:
            return at
    raise ValueError(call)


def _types(text: str) -> list[Type]:
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    parts.append(text[begin:])
    return [_one(part.strip()) for part in parts if part.strip()]


def _one(text: str) -> Type:
    name, bracket, rest = text.partition("(")
    if bracket:
        inside = _types(rest[:-1])
        return types.optional_of(inside[0]) if name == "optional" else Type(name, params=tuple(inside))
    if len(text) == 1:
        return types.param(text)
    return NAMED.get(text) or Type(text)
