"""The hosts' commands: boards, problems, people, limits, rejudging, finals."""
