"""Authority to act while nobody watches: delegated, narrow, expiring, revocable."""
