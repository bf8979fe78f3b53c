"""The audit log: what is recorded of a request, by which policy, into which files."""
