"""How a change meets the live object: the three patch formats, client-side apply and server-side apply.

``patch``, ``strategic_merge`` and ``apply`` need the objects alone. ``server_side_apply`` merges by type
(``typed_merge``) over sets of fields (``fieldsets``) whose owners are kept in ``managed_fields``.
"""
