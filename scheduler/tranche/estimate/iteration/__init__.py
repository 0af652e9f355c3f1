"""Times of the iterations of a job's workers, and the shares of bandwidth and batch that even them out."""
