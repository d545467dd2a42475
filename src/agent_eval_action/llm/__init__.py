"""Models that judge and play users: providers, and the policies that wrap them."""
