"""What streams need of nodes: containers are found, Docker called, ports reached. What streams carry is not read here.

``minik8s-streams`` (the room ``streams``) parses what API servers, kubectl and containers send, without any rights. It
passes on the request that an API server has signed (handing.py, signatures.py); what is found for it (opening.py,
forwarding.py) goes back as a file descriptor.
"""
