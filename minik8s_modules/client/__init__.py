"""Typed client and informer for the API."""
