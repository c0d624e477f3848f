"""How long the parts of an iteration take: matrices, experts, attention, collectives, and the host beside them."""
