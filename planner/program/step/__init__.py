"""What is known of a step before there is a mesh: its kernels, their loops, what is cut from them or computed in passing."""
