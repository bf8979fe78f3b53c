"""Custom kinds: from a CustomResourceDefinition to kinds that are served as the built-in ones are.

``definitions`` says whether a definition may be stored (``approval`` in Kubernetes' own groups), ``schemas`` and
``lists_and_maps`` whether its schema is structural. ``kinds`` compiles it into ``Kind``s with a ``Declaration``:
``filling`` prunes and defaults objects, ``checking`` validates them (``faults``: what an update may leave as it was),
``rules`` has their CEL, ``paths`` reads columns and scales. ``conditions`` decides its status: names,
establishment, end. Source: k8s.io/apiextensions-apiserver v0.32.
"""

FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
"""Holds a definition that is being deleted until its objects are gone."""
