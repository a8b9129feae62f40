"""Every strategy of a kernel with its seconds, and what resharding between kernels takes."""
