"""What is answered by somebody else: logs, exec and port-forward by gateways, plans and drift by reconcilers."""
