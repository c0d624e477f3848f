"""What happens in a job: one scenario as it is, step by step."""
