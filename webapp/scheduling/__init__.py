"""The engine: due slots become runs, exactly once, for every kind of target."""
