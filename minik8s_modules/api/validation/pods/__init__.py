"""Validation of Pods and of what is like one in other kinds' templates.

``pods`` checks a Pod spec with the other modules: ``containers`` (and their ``probes``), ``volumes``, ``security``,
``affinity``, scheduling ``gates``. ``ephemeral``, ``resizes`` and ``mirrors`` check what a subresource may change.
"""
