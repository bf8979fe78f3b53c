"""The minik8s command."""
