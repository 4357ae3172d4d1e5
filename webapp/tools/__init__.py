"""What a turn can do beside talking: each tool reads untrusted arguments strictly and says exactly what it would do."""
