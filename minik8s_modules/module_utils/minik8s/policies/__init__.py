"""Rules that hold back what no NetworkPolicy allows: the section ``policies``.

``policies`` runs the pass; ``policy_entries`` checks what is declared, ``policy_rules`` makes rules of it, and
``policy_table`` reads and writes them in a table of nftables of our own.
"""
