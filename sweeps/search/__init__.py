"""Choose the next trial and its parameters, and decide what happens to a trial at a rung.

search_loop           combines queue, sampler and scheduler of one sweep; has the verbs `ask` and `tell`
trial_queue           orders repeats, initial points and grid cells; `cells` chooses the next grid cell
optuna_asker          creates the Optuna trials
samplers/             one file for each algorithm; `base` has the port
schedulers/           one file for each scheduler; `base` has the port
exploit               lets a trial continue from another trial's checkpoint, as in Population Based Training
plugins               builds the sampler and the scheduler of a space, including user-defined ones
journal_rebuild       rebuilds a damaged study; `journal_lines` sorts the readable lines, `trial_repair` completes single trials,
                      and `configuration_search` finds the keys of a trial from its values
"""
