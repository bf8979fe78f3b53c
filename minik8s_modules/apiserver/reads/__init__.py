"""Answers that change nothing: get, list and watch; ``hub`` sends one frame of an event to all its watchers.

``lanes`` write the events whose objects a program outside converts.
"""
