"""The pages of hosts and of those who help them."""
