"""Nodes that are no machines: a provider runs their Pods elsewhere. The contract is virtual-kubelet's.

provider, errors         what a provider is, and what its errors mean
registry                 the providers there are, in this package and in installed ones
tracker                  PodsTracker, for providers whose back end tells nothing of its own accord
contract                 the tests that every provider passes, for those who write one
providers                those of this package
"""
