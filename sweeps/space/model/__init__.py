"""The parsed space: dimensions, domains, conditions, templates and grid cells."""
