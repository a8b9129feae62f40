"""What is known of a step before there is a mesh: its kernels, their loops, what is computed in passing."""
