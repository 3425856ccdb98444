"""Benchmarks that compare sweeps with other tools on the same work. Each workload is one script.

    python -m benchmarks                                    run every workload five times and write
                                                            reports/benchmarks.md (`make bench`)
    python -m benchmarks xgb_small sleepers --repeats 3     run these workloads; the report keeps
                                                            its results of the others
    python -m benchmarks.xgb_small --repeats 1 --trials 8   run one script; it prints its table and
                                                            writes nothing
    python -m benchmarks tables list                        another benchmark: the models that tools
                                                            make of a table; see `benchmarks.tables`

Each workload has several sides: sweeps, other tools, and often a bare loop that shows the lower
limit. Each run of a side is a separate process, with its own Ray if the side uses Ray. The sides
run in turn, so a slow minute of the machine affects all sides. `common` has the pure functions, and
`running` starts the processes. `ours`, `peers` and `loops` contain code that several workloads use.
"""
