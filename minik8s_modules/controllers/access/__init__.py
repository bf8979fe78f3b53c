"""Certificates, service accounts and tokens: requests are signed, accounts and their roots of trust are kept.

``certificates`` is a process of its own user, which alone holds the authority's key.
"""
