"""The running shard: what is known of each node, and when its next item of work is due.

Informers and the gateway (``gateway_events``) write into ``nodestate``, whose ``agenda`` says when something is due,
and whose ``volume_state`` knows the volumes of drivers;
``loop`` decides a node with ``pods.desired``, ``requests`` and ``section_changes`` turn that into a work item, and its
outcome comes back through the executor. The feeds (``services_feed``, ``ingress_feed``, ``references``, ``tokens``)
say what else of the cluster concerns a node.
"""
