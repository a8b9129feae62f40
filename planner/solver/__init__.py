"""One choice for each node at the least cost within limits on what the choices use: reduced, bounded, proven."""
