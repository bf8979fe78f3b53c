"""KubeVirt's kinds: what they are (kinds), their schemas (schema.yml, definitions), defaults, and rules. Pure."""
