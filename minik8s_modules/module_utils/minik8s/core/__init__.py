"""What every section of a node's document shares: one pass over a section, its documents on disk, the lock and token.

A module hands its parameters to ``shell``, which runs ``section.run_pass``: under the lock of ``fencing`` it reads the
last document (``documents``, ``keyed_documents``, ``digests``), observes, plans, applies, writes the document and
reports. ``schema`` checks entries, ``faults`` are what fails, ``paths`` and ``files`` say where and how state is kept,
``docker`` speaks to Docker's socket, ``labels`` and ``observations`` read what its containers say.
"""
