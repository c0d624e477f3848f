"""How many instances keep the trainer busy?"""
