"""Kubernetes objects as data: kinds, defaults, validation, patches, selectors, quantities, errors. Pure."""
