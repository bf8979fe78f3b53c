"""ValidatingAdmissionPolicies: what they say of a write.

In the order in which a write passes: what policies and bindings are compiled to (compiled), the objects their
expressions may name (params), what they come to (evaluating). ``calls`` puts these together and is all that admission
uses. ``typechecking`` says what of a policy does not fit its kinds.
"""
