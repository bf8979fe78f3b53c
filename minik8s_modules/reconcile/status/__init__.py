"""What the API is told of a pod: ``conditions`` and ``status`` make it from decisions, ``writer`` sends it.

``claim_sizes`` tells claims how large their volumes have become.
"""
