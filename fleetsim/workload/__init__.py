"""Length laws, prompt groups and named random streams, as arrays."""
