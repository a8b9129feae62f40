"""A step lowered under a plan, before anything is compiled: Shardy's propagation of it, and the planner's graph."""
