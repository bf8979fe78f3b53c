"""CEL as Kubernetes 1.32 has it: expressions in custom resources, match conditions and admission policies.

An expression is compiled once, against the types of its variables, to Python closures that read JSON as it was
parsed. Evaluating counts cost as upstream does and stops at a limit, so nothing hangs; regular expressions are RE2's.

For single expressions (match conditions, policies)::

    program = compile(source, Environment({"object": DYN, "request": REQUEST}))   # CelSyntaxError, CelTypeError
    program.type                            # static type of the result: BOOL, STRING, DYN, …
    program.uses("oldObject")               # whether it names a variable
    program.evaluate(variables, budget)     # value; EvaluationError, CostExceeded, BudgetExhausted
    program.estimate()                      # least and most cost

``variables`` maps names to JSON or to values of ``cel.values``; one ``Budget`` is shared by what belongs together
(``PER_OBJECT``, ``PER_MATCH_CONDITIONS``). ``admission`` has the environment of policies and match conditions,
``LazyFields`` for ``variables.*``, and ``authorizer``: an ``AuthorizerValue`` around an ``Authorizer`` that answers
each ``Question`` with a ``Decision``. A rule that is no bool is refused by whoever compiles it: look at ``type``.

For a custom resource::

    compiled, errors = compile_schema(schema, "spec.versions[0].schema.openAPIV3Schema")   # when a CRD is written
    broken = validate(compiled, obj, old_obj)                                              # at each write

``errors`` has what a CRD must be refused for (``SchemaError``: path, type, value, detail). ``broken`` has a
``RuleError`` (path, type, value, message) for each rule that the object breaks; those with ``warning`` are of parts
that the update did not change: warn of them, and accept the write. Values must be valid by their schema, with
defaults filled in. A ``CompiledSchema`` never changes and may be shared by threads.

The wings, in the order in which an expression passes: ``syntax`` (text to tree), ``checking`` (types and costs),
``running`` (closures) with ``libraries`` (functions); ``schema`` makes types of schemas and applies their rules.
"""

from minik8s_modules.cel.checking.ranges import Range
from minik8s_modules.cel.environment import Environment
from minik8s_modules.cel.errors import (
    CelError,
    CelSyntaxError,
    CelTypeError,
    CompileError,
    CostExceeded,
    EvaluationError,
)
from minik8s_modules.cel.libraries.authorization import (
    Authorizer,
    AuthorizerValue,
    Decision,
    Question,
    ResourceCheck,
)
from minik8s_modules.cel.program import (
    PER_MATCH_CONDITIONS,
    PER_OBJECT,
    Budget,
    BudgetExhausted,
    Program,
    compile,  # noqa: A004 - what it does in every CEL library
)
from minik8s_modules.cel.running.builder import PER_EXPRESSION
from minik8s_modules.cel.schema.compiling import CompiledSchema, compile_schema
from minik8s_modules.cel.schema.rules import SchemaError
from minik8s_modules.cel.schema.validating import RuleError, validate
from minik8s_modules.cel.types import BOOL, DYN, INT, STRING, Type, list_of, map_of

__all__ = [
    "BOOL", "DYN", "INT", "PER_EXPRESSION", "PER_MATCH_CONDITIONS", "PER_OBJECT", "STRING", "Authorizer",
    "AuthorizerValue", "Budget", "BudgetExhausted", "CelError", "CelSyntaxError", "CelTypeError", "CompileError",
    "CompiledSchema", "CostExceeded", "Decision", "Environment", "EvaluationError", "Program", "Question", "Range",
    "ResourceCheck", "RuleError", "SchemaError", "Type", "compile", "compile_schema", "list_of", "map_of", "validate",
]  # fmt: skip
