"""Kubernetes objects as data, and the decisions about them that several rooms share. Pure: no input, no output.

Side by side here stands the vocabulary of everything else: ``objects`` (accessors), ``errors`` and ``cause``
(what a client is told), ``kinds`` (which kinds are served), and the syntaxes of values (``quantities``, ``syntax``,
``selectors``, ``field_selectors``, ``cron``, ``size_limits``). A write passes the wings in this order:

``schema`` (types and unknown fields), ``defaulting`` (the original's dialect, other versions, defaults), ``merging``
(when it is a patch or an applied configuration), ``lifecycle`` (what the server decides by itself), ``access`` and
``pods`` (what admission asks), ``validation``.

``tables`` prints what is stored; ``nodes``, ``network`` and ``storage`` hold what controllers, scheduler and
reconciler decide alike. import-linter keeps the order in which the wings may import one another.
"""
