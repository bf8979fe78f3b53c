"""What the functions do: for each overload of ``declarations`` one Python function over values.

``registry.IMPLEMENTATIONS`` has them all by the overload's name. They are pure, take time in proportion to their
arguments, and raise EvaluationError.
"""
