"""One script for each tool, which trains and predicts as a `Job` says.

Scripts of peers run in environments of their own.
"""
