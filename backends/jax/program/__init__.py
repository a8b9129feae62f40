"""What the compiler made: its program as plain data, its collectives, the lines that asked for them."""
