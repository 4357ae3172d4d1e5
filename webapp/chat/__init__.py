"""Conversations, their messages, the turns of a model in them, and the approvals that a turn waits for."""
