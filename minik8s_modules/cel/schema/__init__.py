"""``x-kubernetes-validations`` of a custom resource.

``declared`` makes types of a schema, ``compiling`` compiles its rules once, ``validating`` applies them to an object,
``ratcheting`` knows what an update left as it was.
"""
