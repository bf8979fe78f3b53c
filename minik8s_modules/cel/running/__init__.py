"""From a checked tree to Python closures over JSON as it was parsed.

``builder`` turns each node into a ``Code``: a closure over a frame (a list: what was spent, the limit, variables) and
what it always costs. ``attributes`` reads variables and fields, ``logic`` branches, ``calls`` calls functions,
``folds`` loops; ``reading`` and ``equality`` know what a schema says about values; ``costs`` counts as cel-go does
(interpreter/runtimecost.go with Kubernetes' pkg/cel/library/cost.go).

What always happens is added up while compiling; only branches, loops, and calls whose cost depends on their
arguments add while running. So a rule of ten terms pays for one or two additions.
"""
