"""The plan language: values, notation, reader, writer, patterns, checks, diff, schema. Knows no other room."""
