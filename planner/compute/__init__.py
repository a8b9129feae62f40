"""What running a kernel takes: seconds on a chip, from a formula and a table learned from the compiler."""
