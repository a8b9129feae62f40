"""Translating with trained parameters: incremental decoding, flat beam search, scores."""
