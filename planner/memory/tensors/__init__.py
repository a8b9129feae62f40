"""What each tensor takes in a chip's memory: tiles, layouts of images and tables, what lies beside these."""
