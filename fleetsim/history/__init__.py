"""What a fleet did: Prometheus, files and run logs, read into one form (`History`)."""
