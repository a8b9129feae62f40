"""Which kernel makes and reads which buffer, and which may lie in the place of another."""
