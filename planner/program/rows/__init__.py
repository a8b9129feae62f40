"""The rows of memory: what choices use of a device over the step, and what no plan can go below."""
