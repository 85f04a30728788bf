"""What competitors type: submit, watch, history, boards, and signing in."""
