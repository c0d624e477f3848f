"""How results are told: one Document, drawn in a terminal, on a page and in Markdown. Nothing here knows a feature."""
