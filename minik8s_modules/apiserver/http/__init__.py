"""From bytes to values and back: bodies, negotiation, the target a path names, options, responses, settings, keys.

``backend`` is what handlers reach the store with.
"""
