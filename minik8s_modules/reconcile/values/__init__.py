"""Values that all of the reconciler shares: settings, addresses, work items, sealed secrets, environment. Pure."""
