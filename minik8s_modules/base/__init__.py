"""Clock, back-off, logging, metrics and process life; imports nothing of ours, all rooms may import it."""
