"""What one GPU takes for products, kernels and whole training steps: what is measured, on which card, and how."""
