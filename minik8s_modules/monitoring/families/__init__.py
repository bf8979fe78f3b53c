"""Objects as figures, one table a kind, under kube-state-metrics' names and labels (its docs/metrics, v2.13).

``family`` says what a table is; ``pods``, ``workloads`` and ``cluster`` are the tables. A new figure is a line there.
"""
