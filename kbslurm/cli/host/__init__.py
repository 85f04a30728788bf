"""What hosts type: boards, problems, people, limits, rejudging, finals."""
