"""What `fleetsim doctor` looks at: one file a part of the machine, each a list of checks."""
