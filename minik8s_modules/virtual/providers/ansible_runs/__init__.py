"""The provider ``ansible``: a Pod is one run of a role, or of a playbook, on the hosts of an inventory group.

A Pod becomes a ``RunRequest`` or is refused (``requests.py``); a run has a folder and a process of its own, which
outlives this one (``runs.py``); ``provider.py`` tells of both in a Pod's words; ``settings.py`` reads the
configuration.
"""
