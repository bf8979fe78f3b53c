"""What people do with a service mesh at the command line: they steer what changes, and look at what sidecars do."""
