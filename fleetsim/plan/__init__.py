"""Which fleet and which engines for a budget: every choice together, and the few plans that are worth a look."""
