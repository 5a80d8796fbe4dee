"""Baselines, cases and captures: the only place that drives nodes and servers together."""
