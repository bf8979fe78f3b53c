"""Why something is not as it should be: objects and what is around them in, causes in words out.

``diagnosis`` finds the cause nearest to the fault of one object; ``service_endpoints`` and ``route_causes`` know what
is behind Services, Ingresses and DNS objects. ``why`` and ``trace`` are the commands that show it.
"""
