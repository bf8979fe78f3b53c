"""Playbooks against an API server; a package, so that it ends with the last of its modules in a process."""
