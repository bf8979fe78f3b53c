"""Who a request's sender is (tokens, bootstrap tokens, impersonation), what nodes may reach, what may be granted.

``priority`` gives each request a seat by fair shares; ``reviews`` answers who may do what.
"""
