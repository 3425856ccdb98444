"""Domains, with the names and meanings of Ray Tune.

The functions check the arguments of domains, and compute values from sampled keys. Samplers suggest
keys, and the study records keys. The key of a grid or a choice is the readable name of an option.
The key of `randn` and `qrandn` is the cumulative probability of a value, in (0, 1). The key of any
other domain is the number itself.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from statistics import NormalDist
from typing import Any

from sweeps.space.yaml.scalars import Plain, is_same

from .conditions import ABSENT, Key, Term

# Key of each of some dimensions, by name.
Keys = dict[str, Key]
Number = int | float

INT_LIMIT = 2**63 - 1  # integers have 64 bits in NumPy and in the study
EDGES = (1e-9, 1 - 1e-9)  # a normal distribution is sampled between these quantiles
_SMALLEST = 2.0**-53  # the normal distribution has no quantiles at 0 and 1, so keys stay between


@dataclass(frozen=True)
class Option:
    """One option of a grid or a choice.

    Attributes:
        key: Unique, readable name of the option: the scalar itself, or a short label such as
            `SimpleImputer+StandardScaler`.
        value: The option's value, which may contain dimensions.
    """

    key: Key
    value: Any


@dataclass(frozen=True)
class Rule:
    """The rule for the arguments of a domain of numbers, such as `uniform`.

    Attributes:
        args: Names of the arguments, in order. The first `needed` of them are required, the others
            optional.
        needed: Number of required arguments.
        text: The rule as text for messages, such as "lower < upper".
        integer: True if the arguments and the values are integers.
        log: True if values are sampled on a logarithmic scale. The bounds must then be positive.
    """

    args: tuple[str, ...]
    needed: int
    text: str
    integer: bool = False
    log: bool = False


_BOUNDS = ("lower", "upper")
RULES: dict[str, Rule] = {
    "uniform": Rule(_BOUNDS, 2, "lower < upper"),
    "quniform": Rule((*_BOUNDS, "q"), 3, "lower < upper"),
    "loguniform": Rule(_BOUNDS, 2, "0 < lower < upper", log=True),
    "qloguniform": Rule((*_BOUNDS, "q"), 3, "0 < lower < upper", log=True),
    "randint": Rule(_BOUNDS, 2, "lower < upper (upper is excluded)", integer=True),
    "qrandint": Rule((*_BOUNDS, "q"), 2, "lower < upper", integer=True),
    "lograndint": Rule(_BOUNDS, 2, "0 < lower < upper (upper is excluded)", integer=True, log=True),
    "qlograndint": Rule((*_BOUNDS, "q"), 3, "0 < lower < upper", integer=True, log=True),
    "randn": Rule(("mean", "sd"), 0, "sd > 0"),
    "qrandn": Rule(("mean", "sd", "q"), 3, "sd > 0"),
}
BRANCHING = ("grid", "choice")
DOMAINS = (*BRANCHING, *RULES)


def domain_kind(value: Plain) -> str | None:
    """Return the kind of domain that a mapping stands for, such as "grid".

    Return None for any other value.
    """
    names = [key for key in value if key != "when"] if isinstance(value, Mapping) else []
    return names[0] if len(names) == 1 and names[0] in DOMAINS else None


# What each domain samples, for the reference page and for editors.
DESCRIPTIONS = {
    "grid": "Try all options equally often. A grid cell is one combination of the options of all "
    "grids. Every grid cell gets the same number of trials, or some grid cells get one trial more "
    "than the others.",
    "choice": "Sample one option. The sampler learns which options are good. An option of a "
    "`choice` or a `grid` may contain dimensions.",
    "uniform": "A float between the bounds. Rule: lower < upper.",
    "quniform": "A float, `lower` plus a multiple of `q`. Both bounds are included. "
    "Rule: lower < upper.",
    "loguniform": "A float between the bounds, uniform in its logarithm. Rule: 0 < lower < upper.",
    "qloguniform": "A float, `lower` plus a multiple of `q`, uniform in its logarithm. "
    "Both bounds are included. Rule: 0 < lower < upper.",
    "randint": "An integer. **`upper` is excluded**, as in Ray Tune. Rule: lower < upper.",
    "qrandint": "An integer, `lower` plus a multiple of `q`. Both bounds are included. "
    "Without `q`, or with `q` = 1, **`upper` is excluded**, as in Ray Tune. Rule: lower < upper.",
    "lograndint": "An integer, uniform in its logarithm. **`upper` is excluded**, as in Ray Tune. "
    "Rule: 0 < lower < upper.",
    "qlograndint": "An integer, `lower` plus a multiple of `q`, uniform in its logarithm. "
    "Both bounds are included. With `q` = 1, **`upper` is excluded**, as in Ray Tune. "
    "Rule: 0 < lower < upper.",
    "randn": "A number from a normal distribution. The default is `[0, 1]`. Rule: sd > 0.",
    "qrandn": "A number from a normal distribution, rounded to a multiple of `q`. Rule: sd > 0.",
}


@dataclass(frozen=True)
class Dimension:
    """One tunable value under `space:` or `data:`.

    Attributes:
        name: Dotted path without `space.`, such as `params.eta`. Unique in the space.
        kind: Name of the domain, such as `grid` or `loguniform`.
        options: Options of a grid or a choice, else ().
        lower: Lower bound as written. None for a grid, a choice and a normal distribution.
        upper: Upper bound as written. None if `lower` is None. As in Ray Tune, `randint` and
            `lograndint` exclude the upper bound, and so do `qrandint` and `qlograndint` with q = 1;
            see `highest`.
        q: Step between the values, which begin at `lower`. Values of `qrandn` are multiples of `q`.
            None if the domain has no `q`.
        mean: Mean of `randn` and `qrandn`; None for other domains.
        sd: Standard deviation of `randn` and `qrandn`; None for other domains.
        when: Terms of the condition. The dimension is active only if all of them are true. () if
            the dimension has no condition.
        otherwise: The value that takes the dimension's place if its condition is false; ABSENT in
            most cases.
    """

    name: str
    kind: str
    options: tuple[Option, ...] = ()
    lower: Number | None = None
    upper: Number | None = None
    q: Number | None = None
    mean: Number | None = None
    sd: Number | None = None
    when: tuple[Term, ...] = ()
    otherwise: Any = ABSENT

    @property
    def is_grid(self) -> bool:
        """True for a grid, in which every option gets the same number of trials."""
        return self.kind == "grid"

    @property
    def is_integer(self) -> bool:
        """True for a domain of integers, such as `randint`."""
        return self.kind in RULES and RULES[self.kind].integer

    @property
    def is_log(self) -> bool:
        """True for a domain whose values are sampled on a logarithmic scale.

        An example is `loguniform`.
        """
        return self.kind in RULES and RULES[self.kind].log

    @property
    def highest(self) -> Number | None:
        """The largest possible value: `upper`, or `upper - 1` where Ray Tune excludes `upper`."""
        excludes_upper = self.is_integer and self.q in (None, 1)
        return self.upper - 1 if excludes_upper and self.upper is not None else self.upper

    @property
    def size(self) -> float:
        """Number of values; infinity for a continuous domain and for a normal distribution."""
        if self.options:
            return len(self.options)
        step = self.q or (1 if self.is_integer else None)
        if self.lower is None or self.highest is None or step is None:
            return math.inf
        return round((self.highest - self.lower) / step) + 1

    def value(self, key: Any) -> Any:
        """Return the value that belongs to a sampled key.

        Args:
            key: The sampled key. For a grid or a choice, an option's key. For `randn` and `qrandn`,
                a number in (0, 1). For any other domain, a number within the bounds.

        Returns:
            For a grid or a choice, the value of the option, which may contain dimensions. For a
            domain of numbers, an int or a float.

        Raises:
            ValueError: No option has this key.
        """
        if self.kind in BRANCHING:
            return self.option(key).value
        if self.mean is not None and self.sd is not None:
            probability = min(max(float(key), _SMALLEST), 1 - _SMALLEST)
            return self.nearest(NormalDist(self.mean, self.sd).inv_cdf(probability))
        if self.q is not None:
            assert self.lower is not None and self.highest is not None
            key = min(max(self.nearest(key), self.lower), self.highest)
        return int(key) if self.is_integer else float(key)

    def nearest(self, x: Number, steps: int = 0) -> Number:
        """Return the value of the domain that is nearest to a number, without regard to the bounds.

        If the numbers are integers, the result is an exact integer. Otherwise the result is
        computed from decimal digits and then rounded to a float. The third multiple of 0.1 is
        therefore 0.3, not 3 * 0.1.

        Args:
            x: The number.
            steps: Number of steps to add. A continuous domain has no steps, and returns `x`.
        """
        q = 1 if self.q is None and self.is_integer else self.q
        if q is None:
            return x
        start = self.lower or 0
        if isinstance(q, int) and isinstance(start, int):  # faster than the general case below
            offset = start % q
            near = offset + (round((Fraction(x) - offset) / q) + steps) * q
            return near if isinstance(x, int) else float(near)
        exact_offset = exact(start) % exact(q)
        count = round((Fraction(x) - exact_offset) / exact(q)) + steps
        return float(exact_offset + exact(q) * count)

    def option(self, key: Key) -> Option:
        """Return the option that has a key.

        Raises:
            ValueError: No option has this key.
        """
        for option in self.options:
            if is_same(option.key, key):
                return option
        raise ValueError(
            f"{self.name}: no option {key!r}; valid: {', '.join(str(o.key) for o in self.options)}"
        )


def cumulative_probability(dimension: Dimension, value: float) -> float:
    """Return the key of a value of `randn` or `qrandn`.

    The key is the value's cumulative probability, clipped to `EDGES`.
    """
    assert dimension.mean is not None and dimension.sd is not None
    low, high = EDGES
    return min(max(NormalDist(dimension.mean, dimension.sd).cdf(value), low), high)


def exact(x: Number) -> Fraction:
    """Return the exact value of a number's decimal digits.

    For 0.1, this is one tenth, not the binary fraction that the float stores.
    """
    return Fraction(Decimal(repr(x)))


def build(name: str, kind: str, args: list[Any]) -> Dimension:
    """Return a dimension of numbers.

    Args:
        name: Name of the dimension.
        kind: Name of the domain, a key of `RULES`.
        args: Arguments of the domain. They must be valid; see `argument_problems`.
    """
    values = dict(zip(RULES[kind].args, args, strict=False))
    if kind == "qrandint":
        values.setdefault("q", 1)
    if "mean" in RULES[kind].args:
        values = {"mean": 0.0, "sd": 1.0} | values
    return Dimension(name, kind, **values)


def argument_problems(kind: str, args: list[Any]) -> Iterator[tuple[int | None, str]]:
    """Check the arguments of a domain of numbers.

    Args:
        kind: Name of the domain, a key of `RULES`.
        args: The arguments as they are in the space file, valid or not.

    Yields:
        A pair for each problem: the index of the wrong argument, or None if the problem concerns
        all arguments; and the rule as text, such as "uniform needs lower < upper".
    """
    rule = RULES[kind]
    form = "[" + ", ".join(rule.args) + "]"
    if not rule.needed <= len(args) <= len(rule.args):
        fewest = "" if rule.needed == len(rule.args) else f"{rule.needed} to "
        yield None, f"{kind} takes {fewest}{len(rule.args)} numbers {form}"
        return
    values = dict(zip(rule.args, args, strict=False))
    number_rules = [_number_rule(arg, rule.integer) for arg in args]
    for index, text in enumerate(number_rules):
        if text is not None:
            yield index, f"{kind} {form}: {rule.args[index]} must be {text}"
    if not any(number_rules):
        requirement = _broken_requirement(rule, values)
        if requirement is not None:
            yield None, f"{kind} needs {requirement}"


def _broken_requirement(rule: Rule, values: Mapping[str, Any]) -> str | None:
    """Return the rule that the arguments of a domain break together, such as "lower < upper".

    Return None if they break no rule. `values` has the arguments by name; each is a valid number.
    """
    if any(values.get(name, 1) <= 0 for name in ("sd", "q")):
        return " and ".join(f"{name} > 0" for name in ("sd", "q") if name in rule.args)
    if "mean" in rule.args:
        # All values lie within 10 standard deviations; see `EDGES`.
        farthest = abs(float(values.get("mean", 0))) + 10 * float(values.get("sd", 1))
        return None if math.isfinite(farthest) else "values that a float can hold"
    lower = values["lower"]
    upper = values["upper"]
    if rule.log and lower < 0:
        return f"{rule.text}; the bounds are values, not exponents"
    if lower >= upper or (rule.log and lower == 0):
        return rule.text
    if not math.isfinite(float(upper) - float(lower)):
        return "a range that a float can hold"
    if "q" in values and (exact(upper) - exact(lower)) % exact(values["q"]):
        return "an upper bound that is lower plus a multiple of q"
    return None


def _number_rule(arg: Plain, integer: bool) -> str | None:
    """Return the rule that an argument breaks; None if it breaks no rule.

    The rule is text that follows "must be", such as "an integer".
    """
    allowed = int if integer else (int, float)
    if isinstance(arg, bool) or not isinstance(arg, allowed):
        return "an integer" if integer else "a number"
    if isinstance(arg, float):
        return None if math.isfinite(arg) else "finite"
    return None if abs(arg) <= INT_LIMIT else "within 64 bits"


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Map each name to its short form, without `params.` or `scaling.` at the start.

    If two names have the same short form, both keep their full form.

    >>> short_names(["preprocessor", "scaling.num_workers", "params.eta"])
    {'preprocessor': 'preprocessor', 'scaling.num_workers': 'num_workers', 'params.eta': 'eta'}
    """
    short = {name: name.removeprefix("params.").removeprefix("scaling.") for name in names}
    uses = Counter(short.values())
    return {name: short[name] if uses[short[name]] == 1 else name for name in names}
