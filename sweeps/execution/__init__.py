"""Run trials on gangs of warm workers.

Each worker is one long-lived actor (`worker`, `worker_runtime`). A gang is the list of workers that run one trial together. If a gang
has several workers, Ray Train's backends connect them (`backends`).

The `pool` actor owns all workers and keeps the only account of the cluster's resources (`worker_pool`). Pure functions in `allocation`
decide which workers a trial gets. `trial_driver` runs a trial on its gang, over all attempts.

In each worker, `training_loop` calls the user's loop. `ray_train_adapter` connects the loop's calls of `ray.train` to the running
trial (`trial_session`).
"""
