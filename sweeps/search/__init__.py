"""What to try next and when to stop it: the study that is the sweep's record, the sampler, the scheduler's verdicts.

`verdicts`, `cells` and `rules` are pure; `sampler` is Optuna's; `study` keeps the record; `adapters` show all that to Ray Tune.
"""
