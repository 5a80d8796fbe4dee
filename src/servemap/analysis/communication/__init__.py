"""What communication baselines say of the hardware: pairs of cards, places of ranks, rails."""
