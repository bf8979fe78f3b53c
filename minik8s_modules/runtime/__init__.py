"""Work queue, leader election and shards by Lease objects."""
