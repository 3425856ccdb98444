"""`python -m benchmarks.tutorials`: run the tutorials, and print the table."""

import sys

from benchmarks.running import script
from benchmarks.tutorials import WORKLOAD

sys.exit(script(WORKLOAD))
