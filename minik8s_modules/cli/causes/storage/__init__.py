"""Why a claim has no volume (``claims``), and why a volume is not attached to its node (``attaching``)."""
