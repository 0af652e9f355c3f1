"""Policies that place gangs by topology level, one file each, and the formulas that they share."""
