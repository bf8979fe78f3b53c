"""``custom.metrics.k8s.io`` out of Prometheus, for autoscalers: an extension API server behind an APIService.

path + query ─questions─▶ PromQL ─prometheus─▶ samples ─answers─▶ MetricValueList        (server: TLS, front proxy only)
"""
