"""Policies of a job as records: each table has one entry per name, and the entry says everything about the policy.

Nobody else compares names of policies: who wants to know something asks the record. Policies know numbers and settings,
and no scenario, fleet or trainer, so that the rules of a scenario file and the simulator can both ask them.
"""
