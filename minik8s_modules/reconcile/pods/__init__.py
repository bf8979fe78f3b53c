"""From a pod to the entries of its node's document. Pure: ``desired`` decides a pod, the others are its parts.

``observed`` is what a node said of its containers; ``containers`` and ``sandboxes`` decide with it what comes next.
"""
