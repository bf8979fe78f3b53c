"""What nobody needs any more: garbage of owners that went, namespaces that end, old Events, orphaned pods."""
