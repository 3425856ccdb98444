"""Predict what a sweep will do, from its search space and the machine's resources.

Nothing is started, and no data is read.

A shape is a number of workers and the resources of each worker. A cell is one combination of the
values of all grids.

feasibility   finds shapes that can never run; `sweeps plan` and `sweeps run` reject a space
              with such a shape
plan_counts   counts the trials of each cell and of each shape, and the preprocessing chains to fit
steps         estimates the number of steps of all trials under the scheduler
plan_summary  combines all predictions in a `Plan`
plan_text     formats a `Plan` as text for the terminal
"""

from .feasibility import find_infeasible_shapes, find_infeasible_shapes_here
from .plan_summary import Plan, plan
from .plan_text import render

__all__ = ["Plan", "find_infeasible_shapes", "find_infeasible_shapes_here", "plan", "render"]
