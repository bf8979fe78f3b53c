"""The providers of this package, one module each; ``registry`` names them.

``mock`` runs nothing and remembers everything: the worked example, and what the controllers are tested with.
``simulated`` runs nothing either: thousands of Pods live by declared stages (``stages``).
``reaching`` is what those share that act on machines of an inventory.
"""
