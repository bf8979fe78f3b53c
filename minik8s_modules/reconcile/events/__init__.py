"""Events of the cluster that say what a pass or a node did: of Pods, Services, Ingresses and whole passes.

``pod_events`` has the recorder that the others use. What a section could not do comes through ``section_errors``, which
records an error once and its end once.
"""
