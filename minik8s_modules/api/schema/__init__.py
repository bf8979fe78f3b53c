"""What an object's type says about it: the OpenAPI definitions as data, and the walks along them.

``shapes`` compiles the definitions (Kubernetes' own, and ours from ``schema_own.json``); ``structural`` walks an object
along them for wrong types, unknown fields and pruning; ``coverage`` reads from ``coverage.yml`` what minik8s does with
each field.
"""
