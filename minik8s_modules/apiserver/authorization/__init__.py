"""Who asks, what for, and whether that is allowed: users, attributes of a request, RBAC. Imports no other wing."""
