"""What another fleet would do on the same history: what-ifs, recommendation, patch, plan file, verification."""
