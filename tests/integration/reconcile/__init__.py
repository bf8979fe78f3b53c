"""The whole path on this machine; a package, so that its cluster ends with the last of its modules in a process."""
