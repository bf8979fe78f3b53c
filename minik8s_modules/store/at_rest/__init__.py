"""Encryption at rest: ``keyring`` reads the keys, ``encryption`` wraps a store, ``secrets_command`` changes keys."""
