"""Choose the next trial and its parameters, and decide what happens to a trial at a rung.

search_loop           combines the queue, the sampler and the scheduler of one sweep; `ask` returns
                      the next trial, `tell` records its end
trial_queue           orders repeats, `first_points` and grid cells; `cells` chooses the next grid
                      cell
configurations        lists the configurations of a space, if they are few
optuna_asker          creates the Optuna trials
samplers/             one file for each algorithm; `base` defines the interface of a sampler
schedulers/           one file for each scheduler; `base` defines the interface of a scheduler
exploit               lets a trial continue from another trial's checkpoint, as in Population Based
                      Training
plugins               builds the sampler and the scheduler of a space, including user-defined ones
"""
