"""What controllers share: taking objects of an owner, steps on pods, acting on the API, reading pods."""
