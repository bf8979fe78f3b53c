"""Who a client is and what it may do.

A machine joins with a token (``bootstrap_tokens``), its request is read by ``certificate_requests`` and its certificate
by ``certificate_names``. What it then may do ``rbac`` says, and ``steering`` who may set the labels, annotations and
finalizers that steer the cluster.
"""
