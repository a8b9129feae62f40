"""The integer program of a step on one mesh: a choice of layouts for every kernel, priced as ``estimate`` prices them."""
