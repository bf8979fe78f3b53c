"""What a kubelet does beside running pods: garbage of containers and images, pressure and eviction, static pods.

``housekeeper`` looks which ``job`` of which node is due: ``static_files``, ``local_storage`` and ``collection`` ask the
node for a section each; what the gateway tells lies in ``node_figures``, and ``relief`` judges it. ``static_pods``,
``garbage``, ``image_gc``, ``pressure`` and ``eviction`` decide without input or output.
"""
