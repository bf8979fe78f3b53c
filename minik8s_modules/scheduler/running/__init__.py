"""The scheduler's thin shell: watches in, bindings, evictions, conditions and Events out."""
