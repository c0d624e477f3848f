"""What `scenario to` writes, read by the frameworks' own parsers (install.sh fetches them)."""
