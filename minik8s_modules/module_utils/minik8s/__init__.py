"""Code that is shipped to nodes: standard library and relative imports only."""
