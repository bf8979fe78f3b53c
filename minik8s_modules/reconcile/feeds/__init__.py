"""What of the cluster concerns a node, kept up to date from informers.

``services_feed``, ``policies_feed``, ``ingress_feed`` and ``folder_feed`` keep the sections services, policies, dns,
ingress and folders; the last also tells volumes what became of theirs. ``references`` knows which Pods name
a ConfigMap, Secret or claim, and ``tokens`` holds the tokens of their service accounts; ``copies`` are the informers'
Pods and nodes, ``address_claims`` asks for Pod addresses, ``plan_subjects`` says which objects a plan may show.
"""
