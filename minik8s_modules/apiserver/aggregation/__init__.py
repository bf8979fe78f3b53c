"""APIServices: groups that a program in the cluster answers in this server's stead.

``directory`` says who answers which path, and as what a request there is authorized; ``heads`` what passes of the heads
of a request and its answer. ``forwarding`` hands a request over to ``extensions``, whose one thread carries all of
them. ``keeping`` keeps the server's own APIServices, sees who is available, and remembers what everybody ``offers``, so
that discovery waits for nobody; what OpenAPI v2 says of it is ``swagger``'s.
"""
