"""What convolutions and the kernels around their images take, cut into parts or looped over."""
