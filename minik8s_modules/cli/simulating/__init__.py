"""``simulate``: what a change of a cluster would do to its utilisation, before anybody makes it.

description   documents of node groups and of manifests, read into objects; changes of a command line
snapshots     the same of a running cluster, names only
cluster       the objects beside the schedulers' and controllers' own deciders. Pure
reports       how full each group of nodes is, and which pods have none
command       the command line, and what it prints
"""
