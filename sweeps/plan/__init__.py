"""What a sweep will come to, before it starts: arithmetic on the space and on a machine's resources. Starts nothing, opens no data.

room        what can never fit, refused here and in `run`
cells       how often each cell is visited, and on which shapes
chains      how many distinct chains of preprocessing will be fitted
steps       reports of the loop that the scheduler will spend, at least and at most
gangs       how many gangs will be started
disk        what checkpoints will take
sheet       the Plan: all of it
text        the Plan as a person reads it
"""

from sweeps.plan.feasibility import never_fits, never_fits_here
from sweeps.plan.summary import Plan, plan
from sweeps.plan.text import render

__all__ = ["Plan", "never_fits", "never_fits_here", "plan", "render"]
