"""Endpoints of Services as EndpointSlices and Endpoints, and the status of Ingresses."""
