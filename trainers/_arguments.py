"""Split a trial's `params` among a framework and the user's functions, by their signatures."""

import inspect
from collections.abc import Callable, Collection
from typing import Any

from sweeps.core.plugins.trainer_file import read
from sweeps.core.text.suggestions import did_you_mean

from . import Params, whole_numbers, without


class SplitParams:
    """A trial's `params`, split among a framework and the user's functions.

    A parameter that several of them name is passed to each.

    Args:
        trainer: Name of the trainer, for messages.
        config: The trial's `params`.
        functions: The user's functions and classes.
        framework: Names of the framework's arguments.
        reserved: Those of the framework's arguments that the trainer sets. A function of the user
            may have an argument of the same name.

    Attributes:
        values: The parameters. Nulls that stand for a default of the trainer are left out.
        framework: The parameters that are arguments of the framework.
        rest: The parameters that only a function with `**kwargs` can accept.

    Raises:
        ValueError: A parameter is reserved, or neither the trainer nor a function accepts it.
    """

    def __init__(
        self,
        trainer: str,
        config: Params,
        functions: Collection[Callable[..., Any]],
        framework: Collection[str] = (),
        reserved: Collection[str] = (),
    ):
        rules = read(trainer)["parameters"]
        user_arguments = [name for function in functions for name in _names(function)]
        for name in config:
            if name in reserved and name not in user_arguments:
                raise ValueError(
                    f"params.{name} cannot be set, because the trainer `{trainer}` sets it "
                    "itself; remove it from `params`"
                )
        # A null in place of one of the trainer's parameters stands for its default.
        values = {
            name: value for name, value in config.items() if value is not None or name not in rules
        }
        self.values = whole_numbers(values, rules)
        self.framework = {
            name: value
            for name, value in self.values.items()
            if name in framework and name not in reserved
        }
        known = [*rules, *framework, *user_arguments]
        self.rest = without(self.values, known)
        if self.rest and not any(accepts_any(function) for function in functions):
            name = next(iter(self.rest))
            raise ValueError(
                f"params.{name} is unknown to the trainer `{trainer}` and to the functions that "
                f"the space file names; {did_you_mean(name, known)}"
            )

    def arguments(self, function: Callable[..., Any], known: Params) -> Params:
        """Return the arguments of one of the user's functions.

        Args:
            function: The function or class.
            known: Facts about the trial, such as the number of classes. The function gets those
                that its signature names, unless `params` has another value.
        """
        values = {**known, **self.values}
        arguments = {name: values[name] for name in _names(function) if name in values}
        if accepts_any(function):
            arguments |= self.rest
        return arguments


def accepts_any(function: Callable[..., Any]) -> bool:
    """Return whether a function accepts any keyword argument (`**kwargs`)."""
    parameters = inspect.signature(function).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def _names(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments that can be passed to a function by keyword."""
    keywords = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind in keywords
    ]
