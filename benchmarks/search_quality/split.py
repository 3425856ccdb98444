"""The split of the tasks into two halves.

Methods are developed and tuned on the tasks in `DEVELOPMENT`. The tasks in `HELD` are looked at
once, before a report. The lists are fixed: a task never changes its half. Numbers of generated
tasks below 100 are for development, and so is each OpenML task of LCBench in `lcbench.DEVELOPMENT`,
with and without noise. Such a task may be used for development without being in the list here.
"""

from __future__ import annotations

DEVELOPMENT = (
    *("branin", "hartmann6", "rosenbrock4", "ackley5", "cells", "crossing"),
    *("xgb_cancer", "xgb_california", "mlp_digits", "mlp_california", "xgb_digits"),
    *(
        "lcbench_3945",
        "lcbench_34539+noise",
        "lcbench_126026",
        "lcbench_146212",
        "lcbench_167149+noise",
    ),
    *("lcbench_167161+noise", "lcbench_167184", "lcbench_168330"),
    *("smooth_0", "smooth_1", "smooth_2+noise", "mixed_0", "mixed_1", "mixed_2+noise"),
    *(
        "conditional_0",
        "conditional_1",
        "conditional_2+noise",
        "rough_0",
        "rough_1+noise",
        "rough_2+noise",
        "failing_0",
        "failing_1+noise",
    ),
)
HELD = (
    *(
        "lcbench_7593",
        "lcbench_126025+noise",
        "lcbench_126029",
        "lcbench_167104",
        "lcbench_167152+noise",
    ),
    *("lcbench_167181+noise", "lcbench_167185", "lcbench_168329"),
    *("smooth_100", "smooth_101", "smooth_102+noise", "mixed_100", "mixed_101", "mixed_102+noise"),
    *(
        "conditional_100",
        "conditional_101",
        "conditional_102+noise",
        "rough_100",
        "rough_101+noise",
        "rough_102+noise",
    ),
    *("failing_100", "failing_101+noise"),
)
HALVES = {"dev": DEVELOPMENT, "held": HELD}
