"""What the events of profiles say: where the time of an engine step goes."""
