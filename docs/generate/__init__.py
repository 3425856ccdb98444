"""Pages and pictures of the documentation that are generated from the code."""
