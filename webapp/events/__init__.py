"""What must leave after a commit: one sequence of events per network, and the bell that says there are more."""
