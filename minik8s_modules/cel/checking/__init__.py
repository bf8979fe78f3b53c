"""What an expression means before it runs.

``unify`` knows which types fit, ``checker`` gives all nodes their types (cel-go's checker), ``constants`` judges what
can be judged now, ``estimate`` and ``call_costs`` tell the most that evaluating can cost.
"""
