"""What a kubelet does beside running pods: garbage of containers and images, pressure and eviction, static pods.

``housekeeping`` observes each node now and then and calls the others, which decide without input or output.
"""
