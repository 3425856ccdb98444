"""The peers and us on the same work, in one run: one script a workload.

    python -m benchmarks                                    every workload, five repeats, into reports/benchmarks.md (`make bench`)
    python -m benchmarks xgb_small sleepers --repeats 3     these, into the same report, which keeps the others as they were
    python -m benchmarks.xgb_small --repeats 1 --trials 8   one script alone: prints its table, writes nothing

Every script names its sides: us, the peers, the limit. A run of a side is a process of its own, with a Ray of its own where it has one; the
sides alternate, so that a slow minute of the machine hits all of them. What is pure stands in `common`, the processes in `running`, what
the sides share in `ours`, `peers` and `loops`.
"""
