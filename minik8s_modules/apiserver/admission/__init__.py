"""Between a decoded object and the store: defaults, validation, Pod Security, quotas, addresses of Services.

``chain`` has the order.
"""
