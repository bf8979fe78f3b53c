"""What several rooms decide about volumes and claims: who is bound to whom, and which volume a claim may have.

``claims`` reads the two objects (classes, references, sizes, the annotations that binding leaves); ``matching``
chooses a volume. The controller binds by them, the scheduler looks whether a node can have a pod's claims, the
reconciler finds what to mount, ``why`` tells what a claim waits for.
"""
