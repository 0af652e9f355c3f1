"""Other batch schedulers on the test cluster, and what a benchmark measures of any of them."""
