"""The HTTP API of a kubelet, served for the providers of virtual nodes; virtual-kubelet's ``node/api``.

requests   what a path asks for
bridging   an asyncio connection on one side, blocking reads and writes of a provider's thread on the other
answering  logs, exec, attach, port-forward and figures
server     the listener: mutual TLS, for the API servers' certificate
"""
