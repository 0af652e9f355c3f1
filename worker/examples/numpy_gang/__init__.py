"""A gang in numpy that divides each batch as the scheduler assigns, with a robust all-reduce: an example.

The members train one network on the digits together. The job's spec.communication names the batch, the rule that
divides it and the rule that aggregates the gradients. Rank 0 reports the iterations of all members, and receives their
parts of the next batches.
"""
