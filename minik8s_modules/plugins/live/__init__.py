"""The live run: items and their order, the item socket, workers; as a program, and for the strategy `reconcile`."""
