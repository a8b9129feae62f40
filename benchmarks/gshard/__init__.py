"""GShard's section 5, figure by figure: predicted, compiled, and as the paper has it."""
