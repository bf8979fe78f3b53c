"""Events of the cluster that say what a pass or a node did: of Pods, Services, Ingresses and whole passes.

``pod_events`` has the recorder that the others use; each Event is written once, and again only when it changes.
"""
