"""The whole control plane with thousands of simulated nodes and Pods: ``make scale`` (``__main__``)."""
