"""Agent nodes, their presence, and the tasks in their inboxes."""
