"""The HTTP API for popcorn-cli, hosts and the event feed, and the web pages."""
