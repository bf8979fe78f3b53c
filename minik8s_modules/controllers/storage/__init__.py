"""Volumes and claims: each claim gets the smallest volume that fits, or one that is made for it.

    claim ─claims.py: which volume?─▶ spec.claimRef of the volume ─▶ spec.volumeName of the claim ─▶ Bound
    volume ─volumes.py: whose is it, and what becomes of it when its claim is gone?

A decision writes each object at most once; what follows is decided when the copies show it. So a controller that dies
between two writes leaves nothing that the next one does not finish. ``provisioning.py`` makes volumes for classes.
Source: kubernetes ``pkg/controller/volume/persistentvolume``, ``pvcprotection`` and ``pvprotection``.
"""
