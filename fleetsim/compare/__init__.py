"""Two scenarios, results or windows of history against each other: what differs, and whether it is significant."""
