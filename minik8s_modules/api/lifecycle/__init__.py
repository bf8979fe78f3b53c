"""What the server itself decides about an object that is created, updated or deleted.

``strategy`` prepares a write (fields that clients do not own; ``service_strategy`` those of Services) and says what a
deletion means; ``propagation`` says what becomes of dependents.
"""
