"""One process a shard: node connections, Docker event streams, image pulls, node leases."""
