"""Validators of single values in sections without dimensions.

The ValueError that a validator raises says which rule the value breaks.
"""

import datetime
import math
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import WrapValidator

from sweeps.core.json_values import is_number
from sweeps.core.label_columns import Label
from sweeps.space.yaml.scalars import Plain

T = TypeVar("T")

_DURATION = re.compile(
    r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?\Z"
)

CLASS_NAME = r"^[^\W\d]\w*(\.[^\W\d]\w*)*$"
# Ray Train's backends by the names that sweeps gives them.
BACKENDS = ("torch", "xgboost", "lightgbm", "tensorflow", "jax", "none")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?B)\Z")
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


# Rules of `data.parse` with a fixed name; `currency` is another name of `number`. The other rules
# are units and formats of dates.
NUMBER_RULES = ("number", "decimal_comma", "duration", "currency")

# Shortest value of `limits.heartbeat_timeout`, in seconds.
SHORTEST_HEARTBEAT_TIMEOUT = 5.0


def seconds(value: Plain) -> float:
    """Return the number of seconds of a duration such as `90`, `90s`, `30m`, `1h30m` or `2d`.

    Raises:
        ValueError: The value is not a duration above 0.
    """
    total = math.nan
    if is_number(value):
        total = float(value)
    elif isinstance(value, str) and value and (match := _DURATION.match(value)):
        seconds_of_units = (86_400, 3600, 60, 1)  # days, hours, minutes, seconds
        amounts = zip(match.groups(default=0), seconds_of_units, strict=True)
        total = sum(float(amount) * unit for amount, unit in amounts)
    if not 0 < total < math.inf:
        raise ValueError("must be a time above 0 such as 90s, 30m, 1h30m or a number of seconds")
    return total


def heartbeat(value: Plain) -> float:
    """Return the number of seconds of a duration of at least 5 seconds.

    A worker sends a heartbeat every two seconds.

    Raises:
        ValueError: The value is not a duration, or is too short.
    """
    total = seconds(value)
    if total < SHORTEST_HEARTBEAT_TIMEOUT:
        raise ValueError(
            f"must be at least {SHORTEST_HEARTBEAT_TIMEOUT:g} s, because a worker sends a "
            "heartbeat every two seconds"
        )
    return total


def auto(value: Plain) -> int | None:
    """Return an integer unchanged if it is at least 1. Return None for the text `auto`.

    Raises:
        ValueError: The value is neither `auto` nor an integer of at least 1.
    """
    if value == "auto" and isinstance(value, str):
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("must be `auto` or an integer of at least 1")
    return value


def backend(value: Plain) -> str:
    """Return a value unchanged if it is the name of a backend, or a reference to one.

    A reference to a user's backend has the form `module:attr`. `TrainerSection` checks later that
    the reference leads to existing code.

    Raises:
        ValueError: The value is neither a name of a backend nor a reference.
    """
    is_horovod = str(value).lower() == "horovod" or str(value).startswith("ray.train.horovod")
    if isinstance(value, str) and (value in BACKENDS or ":" in value) and not is_horovod:
        return value
    rule = f"must be {', '.join(BACKENDS)} or a reference `module:BackendConfig`"
    if is_horovod:
        raise ValueError(
            f"{rule}; Ray's Horovod backend works only with a worker group that Ray has removed"
        )
    raise ValueError(rule)


def variables(value: Plain) -> dict[str, str]:
    """Return environment variables as text. A whole number may be written without quotes.

    Raises:
        ValueError: The value is not a mapping of names to text, or a name is invalid.
    """
    if not isinstance(value, dict):
        raise ValueError(
            "must be a mapping of names to text or whole numbers, such as {OMP_NUM_THREADS: 1}"
        )
    for name, text in value.items():
        if not isinstance(name, str) or not _VARIABLE.match(name):
            raise ValueError(
                f"`{name}` is not the name of an environment variable; use letters, digits and _, "
                "with no digit first"
            )
        if isinstance(text, bool) or not isinstance(text, (str, int)):
            raise ValueError(f"the value of {name} must be text; put quotes around it")
    return {name: str(text) for name, text in value.items()}


def parse_rules(value: Plain) -> dict[str, str]:
    """Return the rules of `data.parse` as texts; see `sweeps.data.columns.parse`.

    Raises:
        ValueError: The value is not a mapping of columns to rules, or a rule is neither a known
            word nor the format of a date.
    """
    form = "must be a mapping of columns to rules, such as {price: number, date: '%d/%m/%Y'}"
    if not isinstance(value, dict) or not all(isinstance(name, str) and name for name in value):
        raise ValueError(form)
    return {name: _parse_rule(name, rule) for name, rule in value.items()}


def separator(value: str) -> str:
    """Return the character between two values of a text file unchanged.

    Raises:
        ValueError: The value is not one character of ASCII, or has another meaning in a text file.
    """
    if len(value) == 1 and value.isascii() and value not in '"\r\n':
        return value
    raise ValueError('must be one character, such as ";", or "\\t" for a tab')


def encoding(value: str) -> str:
    """Return the name of an encoding of texts unchanged.

    Raises:
        ValueError: Python has no such encoding.
    """
    try:
        "".encode(value)
    except LookupError:
        raise ValueError("must be an encoding of Python, such as utf-8 or cp1252") from None
    return value


def _parse_rule(column: str, rule: Plain) -> str:
    """Return the text of a column's rule of `data.parse`."""
    if isinstance(rule, dict) and set(rule) == {"rule", "other"} and rule["other"] == "missing":
        return f"{_parse_rule(column, rule['rule'])} or missing"
    if rule in NUMBER_RULES:
        return "number" if rule == "currency" else str(rule)
    text = rule if isinstance(rule, str) else ""
    unit = text.removeprefix("unit ").strip()
    if text.startswith("unit ") and unit:
        return f"unit {unit}"
    if moment := _sample_moment(text):
        has_no_date = moment.date() == datetime.date(1900, 1, 1)  # the default of `strptime`
        return f"time {text}" if has_no_date else text
    raise ValueError(
        f"`{column}` has the rule {rule!r}, but a rule must be number, decimal_comma, duration, a "
        "unit such as 'unit kg', the format of a date or time such as "
        "'%d/%m/%Y' or '%H:%M', or {rule: ..., other: missing}"
    )


def _sample_moment(date_format: str) -> datetime.datetime | None:
    """Return a moment that was written and read again with a format of `strptime`.

    None if the text is no such format.
    """
    moment = datetime.datetime(2001, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    if "%" not in date_format:
        return None
    try:
        return datetime.datetime.strptime(moment.strftime(date_format), date_format)
    except ValueError:
        return None


def type_check(rule: str) -> WrapValidator:
    """Return a validator that lets pydantic check the type of a value.

    The validator reports `rule` if the value does not fit.
    """

    def check(value: Plain, validate: Callable[[Plain], T]) -> T:
        try:
            return validate(value)
        except ValueError:
            raise ValueError(rule) from None

    return WrapValidator(check)


def plain_scalar(value: Plain) -> Plain:
    """Return a value unchanged if it is a scalar.

    Raises:
        ValueError: The value is a mapping or a list.
    """
    if isinstance(value, (dict, list)):
        raise ValueError("must be a single value of the column, not a list or a mapping")
    return value


def size(value: Plain) -> int:
    """Return the number of bytes of a size such as `10GB`.

    Raises:
        ValueError: The value is not a size.
    """
    match = _SIZE.match(value.strip().upper()) if isinstance(value, str) else None
    if not match:
        raise ValueError("must be a size such as 500MB or 10GB")
    return int(float(match[1]) * _UNITS[match[2]])


def label(value: Plain) -> Label:
    """Return the value of `data.label` unchanged if it is the name of a column.

    Return a list of names as a tuple.

    Raises:
        ValueError: The value is neither a name nor a list of at least two different names.
    """
    if isinstance(value, str) and value:
        return value
    if isinstance(value, (bool, int, float)):
        raise ValueError("must be text; put quotes around it")
    names = value if isinstance(value, (list, tuple)) else ()
    if (
        len(names) < 2
        or len(set(map(str, names))) < len(names)
        or not all(isinstance(name, str) and name for name in names)
    ):
        raise ValueError(
            "must be the name of a column, or a list of at least two different columns"
        )
    return tuple(names)


def sweep_names(value: Plain) -> Sequence[Plain]:
    """Check that earlier sweeps are given as a list. Pydantic checks the names in the list."""
    if not isinstance(value, (list, tuple)):
        raise ValueError("must be a list of sweeps, such as [latest]")
    return value
