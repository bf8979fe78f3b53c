"""PodDisruptionBudgets and ResourceQuotas: what their status says they allow and use."""
