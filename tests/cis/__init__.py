"""Hardening controls as data (controls.yml), and ``python -m tests.cis``, which asks an installed cluster."""
