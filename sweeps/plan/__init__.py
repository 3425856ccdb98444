"""Predict what a sweep will do before it starts, from its space and the machine's resources. Starts nothing and reads no data.

feasibility  shapes that can never run; `plan` and `run` refuse them
cells        number of trials of each cell and of each shape
chains       number of distinct preprocessing chains to fit
steps        number of steps that the scheduler will spend
workers      number of workers to start
disk         size of all checkpoints
summary      `Plan`, which holds all of these
text         the plan as text for people
"""

from sweeps.plan.feasibility import find_infeasible_shapes, find_infeasible_shapes_here
from sweeps.plan.summary import Plan, plan
from sweeps.plan.text import render

__all__ = ["Plan", "find_infeasible_shapes", "find_infeasible_shapes_here", "plan", "render"]
