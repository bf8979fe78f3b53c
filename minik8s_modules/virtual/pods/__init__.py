"""Pods of virtual nodes: from the API to a provider, and their statuses back; virtual-kubelet's ``PodController``.

informer ─▶ controller ─▶ environment ─▶ provider      what is to be: ``deciding`` says which function is called
provider ─▶ polling or notify_pods ─▶ controller       what has become: statuses go to the API as a whole
"""
