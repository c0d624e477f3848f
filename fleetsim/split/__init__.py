"""One set of GPUs: shared by rollout and trainer, or split between them?"""
