"""A package, so that its cluster (a fixture of package scope) ends with its last test."""
