"""The minik8s command: kubectl, and what kubectl cannot do.

``main`` decides whose a command is. Ours are declared in ``commands`` and stand beside it: plans, causes (a wing),
nodes, tokens, completion. All else goes through ``translating`` and ``kubectl``, which asks ``manifests`` for files of
the original. ``connection``, ``options`` and ``output`` are shared.
"""
