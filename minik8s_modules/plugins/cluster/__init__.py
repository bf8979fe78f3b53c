"""What the inventory and connection plugins for a cluster's own objects share."""
