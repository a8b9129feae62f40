"""Real text for training: a corpus of translations, its vocabulary, sampling by language, packed batches."""
