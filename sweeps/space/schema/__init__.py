"""The JSON Schema of a space file, and the schemas of parameters."""
