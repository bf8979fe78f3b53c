"""What the server has to offer: groups, resources and their OpenAPI schemas."""
