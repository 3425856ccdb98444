"""Write, read, lock and sign the files of a sweep, in its folder and in its store."""
