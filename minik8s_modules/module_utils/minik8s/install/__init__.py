"""What modules do once rather than in every pass: facts, requirements, certificates, etcd members, daemons, images.

Also what looks after a node beside its sections: attendance, garbage, usage, and the remains a reset must remove.
"""
