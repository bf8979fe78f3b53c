"""The deciders of this room without their shells, on a cluster in memory: what ``plan`` takes turns with."""
