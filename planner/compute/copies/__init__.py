"""What the copies take that bring what is read into another layout, and what is read where it lies row by row."""
