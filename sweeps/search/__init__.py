"""The search: which trial starts next, with which parameters, and what happens to it at a rung.

search_loop     the queue, the sampler and the scheduler of one sweep, with the verbs `ask` and `tell`
trial_queue     the order of repeats, initial points and grid cells; `cells` picks the next grid cell
samplers/       one file for each algorithm; `base` has the port
schedulers/     one file for each scheduler; `base` has the port
exploit         a trial continues from another trial's checkpoint, as in Population Based Training
plugins         build the sampler and the scheduler of a space, the user's own too
journal_rebuild rebuild a damaged study
"""
