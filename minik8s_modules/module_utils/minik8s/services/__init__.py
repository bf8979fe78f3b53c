"""Rules that lead from a Service's address to its endpoints: the section ``services``.

``services`` reads and writes the declared set, ``services_plan`` compares it with what the kernel has, and one of two
backends applies it: ``nftables*`` (maps in a table of our own) or ``ipvs*`` (virtual servers on a dummy device).
"""
