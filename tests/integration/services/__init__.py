"""Services on this machine and in a lab; a package, so that cluster and lab end with the last of its modules."""
