"""The entries of a node's document: every field a section's module accepts, with its type, default and meaning.

``NodeDocument = {section: {key: entry}}``; a file holds the entries of one section. They are declared once, here:
mypy checks the reconciler and the sections against them, ``core.schema.schema_of`` makes the check on the node from
them, and ``plugins/doc_fragments/minik8s_entries.py`` makes of them what ansible-doc prints; so the text below a field
is written in ansible-doc's markup.

A field that must be given stands in a class whose name begins with ``_Required``; one that may be left out stands in
the entry itself, and counts as its ``Default`` then, or null without one. Types are evaluated on the nodes, by Python
3.9 too: hence ``Optional``, and no ``from __future__ import annotations``.
"""
