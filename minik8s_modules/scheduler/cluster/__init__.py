"""What the scheduler knows of the cluster: nodes with their pods, and the pods that wait."""
