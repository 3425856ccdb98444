"""Global settings of libraries that training loops change, such as pandas' options.

A worker restores them after each trial.
"""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sweeps.core.thread_pools import thread_pools

# The setting cannot be read, or has no default.
UNKNOWN: Any = object()


@dataclass(frozen=True)
class GlobalSetting:
    """A global setting of a library. Training loops often change such settings.

    Attributes:
        module: Name of the module. The setting is ignored while the module is not imported.
        get: Function that returns the setting. Its argument is the module.
        set: Function that changes the setting. Its arguments are the module and the new value.
        default: Value to restore if the trial itself imported the module, because there is no value
            from before the trial. It is the value that the import sets. With `UNKNOWN`, the loop's
            value stays in this case.
    """

    module: str
    get: Callable[[Any], Any]
    set: Callable[[Any, Any], Any]
    default: Any = UNKNOWN

    def value(self) -> Any:
        """Return the setting now, or `default` if the module is not imported."""
        if (module := sys.modules.get(self.module)) is None:
            return self.default
        try:
            return self.get(module)
        except Exception:  # This build of the module lacks the setting.
            return UNKNOWN


def _attribute(module: str, path: str, default: Any = UNKNOWN) -> GlobalSetting:
    """Return the setting that is an attribute of a module.

    The path may have dots, such as `backends.cudnn.benchmark` of torch.
    """
    *above, last = path.split(".")

    def holder(module: Any) -> Any:
        for name in above:
            module = getattr(module, name)
        return module

    return GlobalSetting(
        module,
        lambda m: getattr(holder(m), last),
        lambda m, value: setattr(holder(m), last, value),
        default,
    )


def _options(pandas: Any) -> dict[str, Any]:
    """Return the options of pandas, keyed by names such as `display.max_rows`."""

    def flat(options: dict[str, Any], above: str = "") -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in options.items():
            found |= (
                flat(value, f"{above}{name}.")
                if isinstance(value, dict)
                else {f"{above}{name}": value}
            )
        return found

    return flat(pandas.options.d)


def _set_options(pandas: Any, before: dict[str, Any]) -> None:
    for name, value in _options(pandas).items():
        if name in before and before[name] is not value and before[name] != value:
            with warnings.catch_warnings():  # pandas warns if a deprecated option is set.
                warnings.simplefilter("ignore")
                pandas.set_option(name, before[name])


def _precision(module: Any) -> tuple[Any, ...]:
    """Return the contexts of `decimal` for this thread and for new threads."""
    return module.getcontext().copy(), module.DefaultContext.copy()


def _set_precision(module: Any, before: tuple[Any, ...]) -> None:
    module.setcontext(before[0].copy())
    for name in ("prec", "rounding", "Emin", "Emax", "capitals", "clamp", "traps", "flags"):
        setattr(module.DefaultContext, name, getattr(before[1], name))


def _stack_size(module: Any) -> int:
    """Return the stack size of new threads.

    Reading it with `stack_size()` also resets it to 0, so this function sets it again.
    """
    size: int = module.stack_size()
    module.stack_size(size)
    return size


def _plots(parameters: Any) -> dict[str, Any]:
    """Return the rcParams of matplotlib without `backend`, which is not restored, because setting the backend would close all figures."""
    return {name: value for name, value in dict.items(parameters) if name != "backend"}


def _pool_sizes(threadpoolctl: Any) -> dict[str, int]:
    return {pool.filepath: pool.num_threads for pool in thread_pools().lib_controllers}


def _set_pool_sizes(threadpoolctl: Any, before: dict[str, int]) -> None:
    for pool in thread_pools().lib_controllers:
        if pool.filepath in before and pool.num_threads != before[pool.filepath]:
            pool.set_num_threads(before[pool.filepath])


GLOBAL_SETTINGS = (
    GlobalSetting("pandas", _options, _set_options),
    GlobalSetting("decimal", _precision, _set_precision),
    GlobalSetting(
        "socket",
        lambda socket: socket.getdefaulttimeout(),
        lambda socket, value: socket.setdefaulttimeout(value),
    ),
    GlobalSetting(
        "gc",
        lambda gc: (gc.isenabled(), gc.get_threshold(), gc.get_debug()),
        lambda gc, value: _set_collector(*value),
    ),
    GlobalSetting(
        "locale",
        lambda locale: locale.setlocale(locale.LC_ALL),
        lambda locale, value: locale.setlocale(locale.LC_ALL, value),
    ),
    _attribute(
        "multiprocessing.context", "_default_context._actual_context", None
    ),  # The value is None before its first use.
    *(
        _attribute("sys", name)
        for name in ("excepthook", "displayhook", "breakpointhook", "unraisablehook")
    ),
    _attribute("threading", "excepthook"),
    GlobalSetting(
        "sys",
        lambda sys: sys.get_int_max_str_digits(),
        lambda sys, value: sys.set_int_max_str_digits(value),
    ),
    GlobalSetting("threading", _stack_size, lambda threading, value: threading.stack_size(value)),
    GlobalSetting(
        "csv",
        lambda csv: csv.field_size_limit(),
        lambda csv, value: csv.field_size_limit(value),
        1 << 17,
    ),
    _attribute("tempfile", "tempdir", None),
    _attribute("asyncio.events", "_event_loop_policy", None),
    _attribute("ssl", "_create_default_https_context"),
    _attribute("urllib.request", "_opener", None),
    _attribute("logging", "raiseExceptions"),
    _attribute(
        "logging", "_warnings_showwarning"
    ),  # `captureWarnings` stores the function that it replaces in this attribute.
    GlobalSetting(
        "logging",
        lambda logging: logging.getLogRecordFactory(),
        lambda logging, value: logging.setLogRecordFactory(value),
    ),
    GlobalSetting(
        "torch",
        lambda torch: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda torch, value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
        (False, False),
    ),
    GlobalSetting(
        "torch",
        lambda torch: str(torch.get_default_dtype()),
        lambda torch, v: torch.set_default_dtype(_dtype(torch, v)),
        "torch.float32",
    ),
    GlobalSetting(
        "torch",
        lambda torch: str(torch.get_default_device()),
        lambda torch, value: torch.set_default_device(value),
        "cpu",
    ),
    GlobalSetting(
        "torch",
        lambda torch: torch.is_grad_enabled(),
        lambda torch, value: torch.set_grad_enabled(value),
        True,
    ),
    GlobalSetting(
        "torch",
        lambda torch: torch.is_anomaly_enabled(),
        lambda torch, value: torch.autograd.set_detect_anomaly(value),
        False,
    ),
    GlobalSetting(
        "torch",
        lambda torch: torch.get_float32_matmul_precision(),
        lambda torch, value: torch.set_float32_matmul_precision(value),
        "highest",
    ),
    _attribute("torch", "backends.cudnn.benchmark", False),
    _attribute("torch", "backends.cudnn.deterministic", False),
    _attribute("torch", "backends.cudnn.enabled", True),
    _attribute("torch", "backends.cudnn.allow_tf32", True),
    GlobalSetting(
        "numpy", lambda numpy: numpy.geterr(), lambda numpy, value: numpy.seterr(**value)
    ),
    GlobalSetting(
        "numpy",
        lambda numpy: numpy.get_printoptions(),
        lambda numpy, value: numpy.set_printoptions(**value),
    ),
    GlobalSetting(
        "matplotlib",
        lambda m: _plots(m.rcParams),
        lambda m, value: dict.update(m.rcParams, value or _plots(m.rcParamsOrig)),
        {},
    ),
    GlobalSetting(
        "pyarrow",
        lambda pyarrow: pyarrow.cpu_count(),
        lambda pyarrow, value: pyarrow.set_cpu_count(value),
    ),
    GlobalSetting(
        "pyarrow",
        lambda pyarrow: pyarrow.io_thread_count(),
        lambda pyarrow, value: pyarrow.set_io_thread_count(value),
    ),
    GlobalSetting("threadpoolctl", _pool_sizes, _set_pool_sizes),
    GlobalSetting(
        "xgboost",
        lambda xgboost: xgboost.get_config(),
        lambda xgboost, value: xgboost.set_config(**value),
        {"verbosity": 1},
    ),
    GlobalSetting(
        "sklearn",
        lambda sklearn: sklearn.get_config(),
        lambda sklearn, value: sklearn.set_config(**value),
    ),
)


def _set_collector(enabled: bool, threshold: tuple[int, int, int], debug: int) -> None:
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(*threshold)
    gc.set_debug(debug)


def _dtype(torch: Any, name: str) -> Any:
    return getattr(torch, name.removeprefix("torch."))
