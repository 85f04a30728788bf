"""The competitors' commands: submit, watch, history, boards, and signing in."""
