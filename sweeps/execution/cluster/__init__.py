"""Start Ray, or connect to a cluster, and ship the user's code to it."""
