"""NetworkPolicies with real packets, on a machine that is a network namespace."""
