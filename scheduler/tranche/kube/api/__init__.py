"""Names and types of API objects: the custom resources and the parts of core objects that tranche reads."""
