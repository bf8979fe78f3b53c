"""Answers that change objects: create, update, patch, apply, delete, scale, evict."""
