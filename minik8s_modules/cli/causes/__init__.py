"""Why something is not as it should be: an object and what is around it in, causes in words and the next command out.

``checks`` has the check of each kind and the verdict on one object; ``surroundings`` reads what a check wants to know,
once. ``pods``, ``workloads``, ``nodes``, ``access``, ``service_endpoints`` and ``route_causes`` hold the checks, the
folder ``storage`` those of claims and attachments. ``control_plane`` asks why nobody answers at all, ``calls`` has the
way of what API servers ask themselves. ``why`` and ``trace`` are the commands that show it; ``connecting`` says what
policies make of a connection.
"""
