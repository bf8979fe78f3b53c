"""Objects to one document per node, realized through ansible-runner; writes pod status."""
