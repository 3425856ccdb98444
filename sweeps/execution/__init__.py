"""Run trials on workers that stay alive between trials.

A gang is the group of workers that run one trial together.

- pool: the actor that owns all workers and runs the trials
- gangs: which workers run a trial, and which resources of the cluster are in use
- trials: all attempts of a trial
- worker: one worker process, which calls the user's loop
- isolation: what a worker process resets between two trials
- ray_apis: loops that call `ray.tune` or `ray.train`
- cluster: Ray itself, local or on a cluster
"""
