"""What several rooms decide about pods: what they request, what they refer to, and what their namespace allows.

Admission asks in this order: where the template is (``pod_templates``), the token's volume (``account_volumes``),
``limits``, ``security_standards``, ``quotas``. ``resources`` adds up a pod's requests for admission and scheduling.
"""
