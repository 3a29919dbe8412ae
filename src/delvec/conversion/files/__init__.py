"""Data files and vectors of the source in the target: shared, copied, repacked."""
