"""Kubernetes' protobuf request bodies, which kubectl 1.32 and later sends for typed creates."""
