"""Custom kinds: from a CustomResourceDefinition to kinds that are served as the built-in ones are.

``definitions`` says whether a definition may be stored, ``schemas`` whether its schema is structural. ``kinds``
compiles it into ``Kind``s with a ``Declaration``: ``filling`` prunes and defaults objects, ``checking`` validates them,
``paths`` reads columns and scales. ``conditions`` decides its status: names, establishment, end. Source:
k8s.io/apiextensions-apiserver v0.32.
"""

FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
"""Holds a definition that is being deleted until its objects are gone."""
