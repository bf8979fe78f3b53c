"""HorizontalPodAutoscalers: how many pods a workload has, by what they use.

Data passes from readings (what the metrics APIs say) and targets (what a scale says) to replica_counts (one count a
metric), proposals (with status and reasons), autoscalers (the largest proposal) and damping (windows, policies,
bounds); controller is the shell that scales and writes the status.
"""
