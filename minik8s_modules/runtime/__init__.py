"""Work queue, and leader election by Lease objects."""
