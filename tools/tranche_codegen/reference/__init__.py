"""Pages of docs/reference, generated from what they describe; no part of the product."""
