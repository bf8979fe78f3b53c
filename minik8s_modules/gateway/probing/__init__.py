"""Probes and hooks of containers: what the reconciler declares of a pod is run, and every change of a result is told.

checks.py says what a check is, wire.py what is sent and how answers read, running.py runs one check from here,
prober.py talks to the program of a pod's pause container, pod.py is one pod, service.py all of them in a thread.
"""
