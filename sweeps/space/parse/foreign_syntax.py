"""Translate distributions of other tools, such as `{min: 0, max: 1}`, into our domains."""

import math
import re
from collections.abc import Mapping

from sweeps.core.json_values import is_number
from sweeps.space.model.domains import DOMAINS, RULES, argument_problems, exact
from sweeps.space.yaml.scalars import scalar

from .key_suggestions import normalize, our_name
from .nodes import Node

# Maps each key of distributions in other tools to its meaning.
_KEYS: Mapping[str, str] = {
    name: meaning
    for meaning, names in {
        "lower": "min low lower minval minvalue minimum",
        "upper": "max high upper maxval maxvalue maximum",
        "step": "q step stepsize",
        "kind": "distribution type parametertype valuetype space",
        "log": "log logscale uselog",
        "options": "values vals choices options categories",
        "value": "value val",
        "mean": "mu mean loc",
        "sd": "sigma std sd",
        "ignored": "name default defaultvalue isordered sortvalues",
        # these keys change the meaning of the others, so that no domain is computed
        "function": "samplefrom",
        "unsupported": "bounds feasiblespace scale scaletype scalingtype sampling base count "
        "probabilities weights",
    }.items()
    for name in names.split()
}
# Maps each name of a distribution in other tools to the properties that the name implies.
_PROPERTIES: Mapping[str, frozenset[str]] = {
    name: frozenset(properties.split())
    for properties, names in {
        "float": "uniform float double real continuous floatuniform uniformfloat",
        "int": "int integer long intuniform uniformint uniforminteger randint",
        "step": "quniform discreteuniform",
        "float log": "loguniform loguniformvalues reciprocal uniformlogfloat",
        "log step": "qloguniform qloguniformvalues",
        "log": "log logarithmic unitlogscale",
        "normal": "normal randn",
        "normal step": "qnormal qrandn",
        "choice": "categorical choice discrete ordinal",
        "constant": "constant const fixed",
        "lognormal": "lognormal qlognormal",
        "other": "invloguniform invloguniformvalues",
        "": "range",
    }.items()
    for name in names.split()
}
_EXPONENTS = ("loguniform", "qloguniform")
ANOTHER = "write {uniform: [lower, upper]}, {choice: [...]} or another domain"
FUNCTION = (
    "a value cannot be a function of other values; use `when`, or compute the value in the loop"
)
# A call of Ray Tune, Hyperopt, Optuna or NumPy, or of one of our domains.
_CALL = re.compile(
    r"(|(?:ray\.)?tune\.|hp\.|trial\.|(?:np|numpy)\.random\.)(\w+)\((.*)\)", re.DOTALL
)


def translate_mapping(node: Node, values: str = "anything") -> str | None:
    """Return a hint that names the domain to write in place of another tool's distribution.

    Return None for any other mapping.

    A mapping is a distribution only if all its keys occur in distributions of other tools, and if
    the keys together define the values. `{type: adam, lr: 0.1}` and `{value: 3, other: 4}` are
    therefore not distributions.

    Args:
        node: A mapping.
        values: "integers" or "floats" if a domain may have only such values at this place. Any
            other text means no such restriction.

    >>> from sweeps.space.yaml.yaml12 import parse
    >>> translate_mapping(parse("{min: 0.1, max: 1}", ""))
    'write {uniform: [0.1, 1]}'
    >>> translate_mapping(parse("{distribution: log_uniform_values, min: 1e-4, max: 0.1}", ""))
    'write {loguniform: [1e-4, 0.1]}'
    >>> translate_mapping(parse("{type: adam, lr: 0.1}", "")) is None
    True
    """
    if not all(isinstance(key, str) for key in node.value):
        return None
    by_name = {  # the values by the other tool's names, such as "minvalue"
        normalize(key).lstrip("_"): child
        for key, child in node.items()
        if key != "when" and child.value is not None
    }
    if not by_name or not set(by_name) <= set(_KEYS):
        return None
    by_meaning = {_KEYS[key]: child for key, child in by_name.items()}  # such as "lower"
    properties = _properties(by_meaning, "distribution" in by_name)
    if properties is None:
        return None
    has_when = "when" in node.value
    hint: str | None
    if "function" in by_meaning:
        hint = FUNCTION
    elif "unsupported" in by_meaning:
        defining = {"lower", "upper", "kind", "options"} & set(by_meaning)
        hint = ANOTHER if defining or "feasiblespace" in by_name else None
    else:
        hint = _translate(by_name, properties, values, has_when)
        value = by_meaning.get("value")
        defines_values = by_meaning.keys() & {"lower", "upper"} or (value and value.is_list)
        if hint is None and ("distribution" in by_name or (properties and defines_values)):
            hint = ANOTHER
    if hint is None or not has_when:
        return hint
    return f"{hint}, with the same `when`"


def translate_call(text: str) -> str | None:
    """Return a hint that names the domain to write in place of a function call of another tool.

    Return None for any other text.

    >>> translate_call("tune.loguniform(1e-4, 1e-1)")
    'write {loguniform: [1e-4, 1e-1]}'
    >>> translate_call("trial.suggest_int('depth', 1, 8)")
    'write {randint: [lower, upper]} with lower < upper (upper is excluded)'
    >>> translate_call("tune of the day") is None
    True
    """
    match = _CALL.fullmatch(text.strip())
    if match is None or not (match[1] or match[2] in DOMAINS):
        return None
    tool, function, arguments = match.groups()
    args = [arg.rpartition("=")[2].strip() for arg in arguments.split(",")]
    if tool == "hp.":  # its arguments have another meaning
        args = []
    name = our_name("domain", function) or function
    if name in RULES:
        return _domain(name, args)
    if name in DOMAINS:
        options = f"[{arguments}]"
        if arguments.startswith("["):
            options = arguments
        elif tool:  # its arguments may have another meaning
            options = "[...]"
        return f"write {{{name}: {options}}}"
    return ANOTHER


def _properties(by_meaning: Mapping[str, Node], is_distribution: bool) -> set[str] | None:
    """Return the properties of a distribution, such as {"float", "log"}.

    Return None if a key such as `type` has an unknown value.
    """
    properties: set[str] = set()
    if "log" in by_meaning and by_meaning["log"].value is True:
        properties.add("log")
    if "kind" in by_meaning:
        kind = by_meaning["kind"].value
        if not isinstance(kind, str):
            return None
        if normalize(kind) not in _PROPERTIES:
            return {"other"} if is_distribution else None
        properties |= _PROPERTIES[normalize(kind)]
    return properties


def _translate(
    by_name: Mapping[str, Node], properties: set[str], values: str, has_when: bool
) -> str | None:
    """Return a hint that names the domain to write in place of a distribution.

    Return None if the keys do not define the values.

    Args:
        by_name: The values of the distribution, by the other tool's names.
        properties: The properties of the distribution; see `_properties`.
        values: Values that a domain may have; see `translate_mapping`.
        has_when: True if the distribution has a `when`, so that a constant must be a choice.
    """
    by_meaning = {_KEYS[name]: child for name, child in by_name.items()}
    if "lognormal" in properties:
        return (
            "write {randn: [mean, sd]} for the logarithm of the value, and take the exponential "
            "in the loop"
        )
    kind = normalize(by_meaning["kind"].value) if "kind" in by_meaning else ""
    # W&B and Azure ML write the logarithms of the bounds
    if kind in _EXPONENTS and {"distribution", "minvalue"} & set(by_name):
        properties = properties | {"exponents"}
    has_bounds = "lower" in by_meaning or "upper" in by_meaning
    if not has_bounds and ("choice" in properties or {"values", "choices"} & set(by_name)):
        options = by_meaning.get("options")
        if options is None and "choice" in properties:
            options = by_meaning.get("value")
        if options is not None and options.is_list:
            if not options.value:
                return "write {choice: [...]} with at least one option"
            return f"write {{choice: {options.show(80)}}}"
    if "value" in by_meaning and ("constant" in properties or set(by_name) <= {"value", "name"}):
        shown = by_meaning["value"].show(80)
        return f"write {{choice: [{shown}]}}" if has_when else f"write the value itself: {shown}"
    step = "1" if "step" in properties else None
    if "step" in by_meaning:
        step = _number(by_meaning["step"])
        if step is None:
            return None
    if "normal" in properties and has_bounds:
        return ANOTHER
    if "normal" in properties or set(by_name) == {"mu", "sigma"}:
        args = [_number(by_meaning.get("mean")) or "0", _number(by_meaning.get("sd")) or "1"]
        return _domain("qrandn", [*args, step]) if step else _domain("randn", args)
    if properties & {"choice", "constant", "other"}:
        return None
    return _range(by_meaning, properties, step, values)


def _range(
    by_meaning: Mapping[str, Node], properties: set[str], step: str | None, values: str
) -> str | None:
    """Return a hint that names the domain to write in place of a range of numbers.

    Return None if the range does not have two bounds. If the domain must have other bounds than the
    range, the hint says why.
    """
    lower = _number(by_meaning.get("lower"))
    upper = _number(by_meaning.get("upper"))
    if lower is None or upper is None:
        return None
    log_prefix = "log" if "log" in properties else ""
    note = ""  # the reason for other bounds
    # A bound that is not above 0 must be the logarithm of the bound.
    is_logarithm = log_prefix and "log" not in by_meaning and float(lower) <= 0
    if "exponents" in properties or is_logarithm:
        note = f" (e^{lower}, e^{upper})"
        lower = _power(lower)
        upper = _power(upper)
    if step and float(step) > 0 and math.isfinite(float(upper)):
        # The upper bound of a domain with steps is a multiple of q above the lower bound.
        low, high, q = (exact(float(text)) for text in (lower, upper, step))
        if (high - low) % q or ("step" in properties and low % q):
            note += f" (the steps of {step} between {lower} and {upper})"
            if "step" in properties:  # the values of `q_uniform` are multiples of q
                low = math.ceil(low / q) * q
            high = low + (high - low) // q * q
            lower = f"{float(low):.12g}"
            upper = f"{float(high):.12g}"
    arguments = [lower, upper, step] if step else [lower, upper]
    q_prefix = "q" if step else ""
    floats = None
    if values != "integers":
        floats = _domain(f"{q_prefix}{log_prefix}uniform", arguments)
    integers = None
    if values != "floats" and all(isinstance(scalar(text), int) for text in arguments):
        if step in (None, "1"):  # other tools include the upper bound
            integers = _domain(f"{log_prefix}randint", [lower, str(int(scalar(upper) or 0) + 1)])
        else:
            integers = _domain(f"q{log_prefix}randint", arguments)
    if integers and (floats is None or properties & {"int", "step"}):
        return integers + note
    if floats is None:
        return None
    if "float" in properties or integers is None:
        return floats + note
    return f"{integers} for integers, or {floats.removeprefix('write ')}{note}"


def _power(exponent: str) -> str:
    """Return e to the power of a number, as a text; infinity if a float cannot hold it."""
    number = float(exponent)
    return f"{math.exp(number) if number < 709 else math.inf:.6g}"


def _number(node: Node | None) -> str | None:
    """Return a number as written, with or without quotes. Return None for anything else."""
    if node is None or node.is_map or node.is_list:
        return None
    text = node.value if isinstance(node.value, str) else node.raw
    try:
        value = scalar(text)
    except ValueError:
        return None
    return text if is_number(value) else None


def _domain(kind: str, args: list[str]) -> str:
    """Return a hint that shows a domain with these arguments.

    If the arguments break the domain's rule, the hint shows the rule instead.
    """
    if not list(argument_problems(kind, [scalar(arg) for arg in args])):
        return f"write {{{kind}: [{', '.join(args)}]}}"
    rule = RULES[kind]
    steps = " and an upper bound that is lower plus a multiple of q" if "q" in rule.args else ""
    return f"write {{{kind}: [{', '.join(rule.args)}]}} with {rule.text}{steps}"
