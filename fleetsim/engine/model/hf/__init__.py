"""Reading a Hugging Face config.json, part by part."""
