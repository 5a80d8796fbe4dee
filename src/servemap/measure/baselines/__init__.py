"""Communication baselines by kind; `servemap.measure.baseline` makes their records."""
