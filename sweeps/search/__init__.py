"""Choose the next trial and its parameters, and decide what happens to a trial at a rung.

search_loop               combines the queue, the sampler and the scheduler of one sweep; `ask`
                          returns the next trial
trial_queue               orders repeats, first points and grid cells
first_points              chooses the configurations that come before those of the sampler
cells                     chooses the next grid cell
configurations            lists the configurations of a space, if they are few
earlier_trials            stores the trials of earlier sweeps (`search.from`)
earlier_configurations    translates them to the dimensions of the new space
optuna_asker              creates the Optuna trials
samplers/                 one file for each algorithm; `sampler` defines the interfaces
schedulers/               one file for each scheduler; `scheduler` defines the interface
exploit                   lets a trial continue from another trial's checkpoint, as in Population
                          Based Training
plugins                   builds the sampler and the scheduler of a space, including user-defined
                          ones
"""
