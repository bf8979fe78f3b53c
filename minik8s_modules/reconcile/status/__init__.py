"""What the API is told of a pod: ``conditions`` and ``status`` make it from decisions, ``writer`` sends it."""
