"""Ansible plugins: strategy, connection, inventory."""
