"""Check, read, split and preprocess the data of a sweep.

Ray is imported only to read rows or to fit one of Ray's preprocessors.

- data_actor: the actor that reads the data, and prepares it for trials
- sources: files, tables and datasets, and their schema
- columns: the types and values of columns
- splits: train, valid and test, folds, and variants of the data
- checks: problems that end a sweep before its first trial
- summary: the summary of a table, with its warnings
- preprocessing: steps, and chains of fitted steps
- streaming: the same for data that does not fit into memory
"""
