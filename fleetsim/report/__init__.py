"""Results as people and programs read them: terminal, JSON, sentences. Nothing here computes."""
