"""The price of a plan, predicted: seconds, bytes and collectives of a step, put together from the stages before."""
