"""Operator: creates, evicts and resumes the pods of TrainingJobs according to their plans.

It reads and writes objects of the API server only, and does not depend on the scheduler's code.
"""
