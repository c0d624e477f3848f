"""A running fleet, looked at again and again: the recommended count, damped, and where it is exported."""
