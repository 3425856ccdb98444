"""Find the files of a data source, and read the schema and first rows."""
