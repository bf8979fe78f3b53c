"""Links of pods and nodes: netlink messages, the bridge, the VXLAN overlay, and plugins (CNI, Weave) in their place.

``network`` is the section; it chooses a part by the document's driver (``network_bridge``, ``network_vxlan``,
``network_plugins``). ``attachment`` gives a sandbox its link, ``netlink`` and ``netfilter`` hold the bytes.
"""
