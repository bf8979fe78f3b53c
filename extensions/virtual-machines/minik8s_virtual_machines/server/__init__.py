"""One HTTPS server for what API servers ask the extension.

listener      connections, heads, bodies; who may ask (mutual TLS with the front proxy)
routes        path and method → what is asked
webhooks      admission: defaults, refusals, evictions
access        may the caller do that (SubjectAccessReview)
subresources  start, stop, pause, … of subresources.kubevirt.io/v1
streams       console, vnc, portforward: a WebSocket on our side, another one to the API server
podstreams    the client's side of pods/exec and pods/portforward, for asyncio
"""
