"""The collector catalogue and the alignment of samples to segments."""
