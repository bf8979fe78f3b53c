"""The original's command line: ``translating`` turns its forms into kubectl's, ``manifests`` its files into ours."""
