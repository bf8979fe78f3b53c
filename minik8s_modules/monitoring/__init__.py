"""``minik8s-monitoring``: what a Prometheus beside it needs of the cluster.

    informers ─▶ targets ─▶ target_files      whom to scrape: files for Prometheus' file_sd, one a node and one a Pod
             └─▶ families ─▶ object_metrics   objects as figures, under the names of kube-state-metrics
    tokens                                    the token with which Prometheus asks the API servers and daemons

It reads objects and writes below one directory; it changes nothing in the cluster. The role ``monitoring`` installs it
together with Prometheus.
"""
