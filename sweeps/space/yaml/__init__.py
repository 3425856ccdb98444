"""YAML text to nodes with line and column, and values as YAML."""
