"""Compare the model that a newcomer gets from a table with the models of other tools, in equal
time.

    python -m benchmarks tables list                   the tables, and which of them are held back
    python -m benchmarks tables peers                  make the environments of the peers
    python -m benchmarks tables run --dev --seeds 0    the six tables for development, one seed,
                                                       one minute for each tool
    python -m benchmarks tables run --held             the tables that are looked at once, before a
                                                       report
    python -m benchmarks tables report                 write reports/tables.md from
                                                       reports/tables.jsonl
    python -m benchmarks.tables.portfolio FOLDER       choose the configurations of
                                                       `search: {portfolio: xgboost}`

`catalog` lists the tables, `generated` makes some of them, and `split` holds rows and tables back.
`tools` has one script for each tool. `run_cell` runs one tool on one table and keeps the result as
a `Cell`. `scores` and `report` are pure functions of these cells.
"""
