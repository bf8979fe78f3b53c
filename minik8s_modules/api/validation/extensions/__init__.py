"""Validation of what extends the API server: admission webhooks, admission policies and APIServices.

``expressions`` compiles the CEL expressions of ``webhooks`` and ``admission_policies`` to find what is wrong in them.
"""
