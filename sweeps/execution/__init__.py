"""Run trials on workers that stay alive between trials.

The names in backticks, except `ray.train`, are modules of this package.

Each worker is one long-lived actor (`worker`, `worker_runtime`). A gang is the group of workers
that run one trial together. If a gang has several workers, Ray Train's backends connect these
workers (`backends`).

The `pool` actor owns all workers and records which resources of the cluster are in use
(`worker_pool`, with the parts `cluster_nodes`, `worker_processes` and `gang_connections`). Pure
functions in `allocation` decide which workers run a trial. `trial_driver` runs all attempts of a
trial (`attempt`).

In each worker, `training_loop` calls the user's loop. `ray_train_adapter` connects the loop's calls
of `ray.train` to the running trial (`trial_session`).
"""
