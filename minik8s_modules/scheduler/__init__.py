"""Chooses a node for each pod and binds it, as kube-scheduler 1.32 does.

A pod passes: ``running`` (watches) → ``queueing`` → ``cluster`` (the snapshot) → ``deciding`` (one cycle, asking
``plugins`` that ``profiles`` made) → ``running`` (binding, preemption). ``framework`` is what all of them speak of.
"""
