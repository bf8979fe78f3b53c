"""Which pod is tried next, and when one that was refused is tried again."""
