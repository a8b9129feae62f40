"""Lower bounds: messages between nodes, multipliers on rows."""
