"""Warm gangs: sets of workers that run one trial after another, and the pool that owns them.

A gang of one is an actor (`local`); a gang of more is one long-lived Ray Train run (`train_run`). Both run the same
loop (`rank`), around which `seam` puts the trial at hand in place of Ray Train's own session. The `pool` leases gangs to
trials and keeps the one account of the cluster's resources; what it does next is decided in `account`, without Ray.
"""
