"""Predicates, statistics, and which files they rule out."""
