"""What the warm connections share: the payload's layout, the client, and the server that runs on nodes."""
