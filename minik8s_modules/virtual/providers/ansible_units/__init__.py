"""The provider ``ansible``, where a Pod is a unit of systemd: one program on one host of the group.

machines    the hosts: passes of ``minik8s_units`` by Ansible, and journals over ssh
records     the Pods that there are, kept over restarts
statuses    what a host tells of a unit in a Pod's words (pure)
followers   a thread for each host, which declares its units and asks how they are
figures     metrics
pods        what the provider asks of these
"""
