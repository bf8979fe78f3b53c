"""``plan`` and ``drift``: what applying objects would change on every node, and what differs already.

``planserver`` takes the question, ``simulation`` applies it to an imagined cluster (``simulated_rollouts``,
``simulated_services``), ``plan`` asks the nodes in check mode, ``plan_requests`` and ``plan_lists`` word the answer.
"""
