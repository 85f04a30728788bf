"""The HTTP face: what popcorn-cli calls, the hosts' calls, the event feed and the web pages."""
