"""One file a controller: pure decisions, then a small shell."""
