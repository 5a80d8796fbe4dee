"""Before a campaign: whether the nodes are ready (`doctor`), and a first campaign file (`init`)."""
