"""People, the networks they belong to, and the tokens that stand for them or for a node."""
