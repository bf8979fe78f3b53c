"""One scheduling decision: a pod, a snapshot and a profile in; a node, or why there is none, out. Pure.

What identical pods share is kept from one decision to the next (``templates.py``); it changes no answer.
"""
