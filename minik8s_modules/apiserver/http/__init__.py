"""From bytes to values and back: bodies, negotiation, the target a path names, options, responses, settings, keys.

``backend`` is what handlers reach the store with; ``rounds`` is the thread of what the server keeps right by itself.
"""
