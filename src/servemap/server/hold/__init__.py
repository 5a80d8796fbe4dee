"""Who drives a run and its nodes, from the first job to the last."""
