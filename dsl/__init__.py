"""The plan language: values, notation, reader, writer, patterns, checks, diff, schema. Knows nothing of the other rooms."""
