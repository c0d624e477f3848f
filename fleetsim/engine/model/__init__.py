"""Models: of which layers they are made, in which precision their weights are, and what that reads and computes."""
