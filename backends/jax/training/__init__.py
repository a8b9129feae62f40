"""Running a plan: the loop, its feeding, its records, its clean end."""
