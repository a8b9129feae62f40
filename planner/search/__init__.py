"""The search: meshes, device orders and remat policies, each solved as a program; the best plan, with a proof."""
