"""servemap: map where an LLM serving cluster's time goes."""

__version__ = "0.1.0"
