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
    show_bars = context.enable_progress_bars
    preserve_order = context.execution_options.preserve_order
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # errors are raised, so they need not be logged
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    try:
        yield
    finally:
        context.enable_progress_bars = show_bars
        context.execution_options.preserve_order = preserve_order
        logger.setLevel(level)
