"""Functions one by one: upstream's tables (cel-go 0.22 ext/, apiserver pkg/cel/library), and what they leave out."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.cel import CelError, CelTypeError, Environment, EvaluationError, compile  # noqa: A004 - tested here
from minik8s_modules.cel.declarations import functions
from minik8s_modules.cel.libraries.registry import IMPLEMENTATIONS
from minik8s_modules.cel.values import Optional
from tests.support.cel_cases import cases

NONE: Environment = Environment()


def value_of(source: str) -> Any:
    return compile(source, NONE).evaluate({})


@pytest.mark.parametrize("case", [pytest.param(case, id=case["expression"][:120]) for case in cases("libraries")])
def test_a_function_gives_what_it_gives_upstream(case: dict[str, Any]) -> None:
    if "result" not in case:
        with pytest.raises(CelError, match=case.get("error")):
            value_of(case["expression"])
        return
    value = value_of(case["expression"])
    if isinstance(value, Optional):
        value = value.value if value.present else "none"
    assert value == case["result"]
    assert type(value) is type(case["result"])


@pytest.mark.parametrize(
    "source",
    [
        "1 == dyn(1.0) && dyn(1u) == 1 && 1u < 1.5 && !(true == dyn(1))",
        "9223372036854775807 - 1 == 9223372036854775806 && -9223372036854775808 < 0",
        "7 / -2 == -3 && -7 % 2 == -1 && 7 % -2 == 1",
        "1.0 / 0.0 > 1e308 && string(0.1 + 0.2) == '0.30000000000000004' && string(1e6) == '1e+06'",
        "double('1e3') == 1000.0 && int('-5') == -5 && uint('7') == 7u && bool('T') && string(b'abc') == 'abc'",
        "int(2.9) == 2 && int(-2.9) == -2 && int(timestamp('1970-01-01T00:01:00Z')) == 60",
        "size('ñandú👑') == 6 && size(b'ñ') == 2 && '👑'.charAt(0) == '👑'",
        "'ñ' == '\\u00f1' && b'\\xff' < b'\\xff\\x00'",
        "{1: 'a'}[dyn(1u)] == 'a' && {true: 1}[true] == 1 && dyn(1.0) in {1: 2} && !(dyn(1) in {true: 1})",
        "{'a': 1}.all(k, k == 'a') && {'a': 1}.exists(k, v, v == 1) && [3, 1].transformMap(i, v, v) == {0: 3, 1: 1}",
        "timestamp('2024-02-29T23:59:59.5-02:00').getDate() == 1",
        "timestamp('2024-02-29T00:00:00Z').getDayOfYear() == 59",
        "timestamp('2024-06-01T00:00:00Z').getHours('Europe/Berlin') == 2 && timestamp(0).getDayOfWeek() == 4",
        "timestamp('2024-01-01T00:00:00Z') + duration('1h') - timestamp('2024-01-01T00:00:00Z') == duration('60m')",
        "string(timestamp('2024-01-01T00:00:00.120+01:00')) == '2024-01-01T00:00:00.12+01:00'",
        "duration('-1.5h').getMinutes() == -90 && string(duration('1h1ms')) == '3600.001s'",
        "'aXbXc'.findAll('[a-z]') == ['a', 'b', 'c'] && 'abc 123'.find('[0-9]+') == '123' && 'x'.matches('(?i)X')",
        "'123 abc 456'.findAll('[0-9]*') == ['123', '', '', '', '', '456'] && 'aa'.findAll('a', 1) == ['a']",
        "[1, 3, 2].max() == 3 && ['b', 'a'].min() == 'a' && [duration('1s'), duration('2s')].sum() == duration('3s')",
        "[1, 2, 2].lastIndexOf(2) == 2 && ![2, 1].isSorted() && [].sum() == 0",
        "optional.of(1).or(optional.none()).value() == 1 && optional.none().orValue(2) == 2",
        "{?'a': optional.none()} == {}",
        "[?optional.of(1), 2] == [1, 2] && [1][?5].orValue(7) == 7 && {'a': {'b': 1}}.?a.b.orValue(0) == 1",
        "optional.of(2).optMap(v, v * 2) == optional.of(4)",
        "optional.of(1).optFlatMap(v, optional.none()) == optional.none()",
        "1 / 0 > 0 || true && !(1 / 0 > 0 && false)",
        "[1, 0].exists(d, 1 / d == 1) && ![0, 1].all(d, 1 / d > 1)",
        "r'\\d' == '\\\\d' && '''a'b''' == \"a'b\" && \"\"\"x\ny\"\"\" == 'x\\ny' && '\\x41\\101\\u0041' == 'AAA'",
        "type(1) == int && type(type(1)) == type && type([]) == list && type(null) == null_type",
        "type(url('/a')) != int",
        "url('https://u:p@[::1]:80/a b?k=v%20w&k=2#f').getHost() == '[::1]:80'",
        "url('/a b').getEscapedPath() == '/a%20b'",
        "url('https://a/?k=v+w&k=2').getQuery() == {'k': ['v w', '2']} && !isURL('https://a:b:c/') && isURL('/x')",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.0.0.0/8').containsCIDR('::/16')",
        "ip('10.0.0.1') == ip('10.0.0.1') && !isIP('fe80::1%eth0')",
        "string(cidr('10.0.0.1/8').masked()) == '10.0.0.0/8'",
        "quantity('1Gi') == quantity('1024Mi') && sign(quantity('-1')) == -1",
        "quantity('100m').add(quantity('900m')).asInteger() == 1",
        "'%d|%s|%.2f|%x|%X|%o|%%'.format([1, [1, 'a'], 2.5, 255, 'hi', 8]) == '1|[1, \"a\"]|2.50|ff|6869|10|%'",
    ],
)  # fmt: skip
def test_a_finer_point_holds(source: str) -> None:
    assert value_of(source) is True


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("-(-9223372036854775808) == 0", "integer overflow"),
        ("1u - 2u == 0u", "unsigned integer overflow"),
        ("9223372036854775807 * 2 == 0", "integer overflow"),
        ("int(1e30) == 0", "integer overflow"),
        ("1 % 0 == 0", "modulus by zero"),
        ("[1][1] == 0", "index out of bounds: 1"),
        ("{'a': 1}['b'] == 0", "no such key: b"),
        ("optional.none().value() == 0", r"optional.none\(\) dereference"),
        ("timestamp(253402300799) + duration('1s') == timestamp(0)", "timestamp overflow"),
        ("timestamp(0).getHours('Nowhere/Else') == 0", "unknown time zone"),
        ("string(b'\\xff') == ''", "invalid UTF-8"),
        ("'%d'.format(['a' + 'b'].map(x, dyn(x))) == ''", "decimal clause"),
        ("[1, 1].transformMapEntry(i, v, {v: i}) == {}", "insert failed: key 1 already exists"),
        ("dyn('a') + 1 == 2", "no such overload"),
    ],
)
def test_an_error_is_worded_as_upstream(source: str, text: str) -> None:
    with pytest.raises(EvaluationError, match=text):
        value_of(source)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("duration('soon') < duration('1s')", "invalid duration argument"),
        ("'a'.matches('(')", "invalid matches argument"),
        ("'a'.find('(') == ''", "program instantiation failed: error parsing regexp"),
        ("'%d'.format(['a']) == ''", "decimal clause"),
        ("'%s'.format(['a', 'b']) == ''", "too many arguments"),
        ("[1, 'a'] == [1]", "expected type 'int' but found 'string'"),
        ("cel.bind(x, 1, x)", "undeclared reference to 'cel'"),
        ("math.greatest(1, 2) == 2", "undeclared reference to 'math'"),
        ("Object{a: 1} == 1", "undeclared reference to 'Object'"),
    ],
)
def test_a_mistake_is_found_before_anything_runs(source: str, text: str) -> None:
    with pytest.raises((CelTypeError, CelError), match=text):
        compile(source, NONE)


def test_every_overload_is_implemented() -> None:
    elsewhere = {"conditional", "logical_and", "logical_or", "equals", "not_equals", "in_map", "type"}
    elsewhere |= {
        "optional_or_optional",
        "optional_orValue_value",
    }  # what branches, compares or reads has its own closures
    declared = {each.id for overloads in functions().values() for each in overloads if "index" not in each.id}
    assert declared - set(IMPLEMENTATIONS) <= elsewhere
