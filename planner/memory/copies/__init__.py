"""What the compiler makes beside a program's own buffers: copies that kernels and loops read in the place of others."""
