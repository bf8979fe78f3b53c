"""What the strategy `reconcile` is made of: items and their order, the item socket, one worker an item."""
