"""The minik8s command: kubectl, and what kubectl cannot do.

``main`` decides whose a command is. Ours are declared in ``commands`` and stand beside it: nodes, tokens, completion,
and the folders ``plans``, ``causes`` and ``mesh``. All else goes through ``original/translating`` and ``kubectl``,
which asks ``original/manifests`` for files of the original. ``connection``, ``options`` and ``output`` are shared.
"""
