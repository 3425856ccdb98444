"""Change settings of Ray Data for a while."""

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_ray_data() -> Iterator[None]:
    """Within the `with` block, Ray Data is silent and keeps the order of the rows.

    It shows no progress bars or log messages.
    """
    from ray.data import DataContext

    context = DataContext.get_current()
    logger = logging.getLogger("ray.data")
    before = context.enable_progress_bars, context.execution_options.preserve_order, logger.level
    logger.setLevel(logging.CRITICAL)  # errors are raised, so they need not be logged
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    try:
        yield
    finally:
        context.enable_progress_bars = before[0]
        context.execution_options.preserve_order = before[1]
        logger.setLevel(before[2])
