"""The page of `sweeps ui`: the sweeps of a root folder, live in a browser."""
