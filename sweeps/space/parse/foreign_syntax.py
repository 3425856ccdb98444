"""Translate distributions of other tools, such as `{min: 0, max: 1}`, into our domains."""

import math
import re
from collections.abc import Mapping

from sweeps.core.json_values import is_number
from sweeps.space.model.domains import DOMAINS, RULES, argument_problems, exact
from sweeps.space.yaml.scalars import scalar

from .key_suggestions import normalized, our_name
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
_WORDS: Mapping[str, frozenset[str]] = {
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
    named = {
        normalized(key).lstrip("_"): child
        for key, child in node.items()
        if key != "when" and child.value is not None
    }
    if not named or not set(named) <= set(_KEYS):
        return None
    given = {_KEYS[key]: child for key, child in named.items()}
    words = _properties(given, "distribution" in named)
    if words is None:
        return None
    conditional = "when" in node.value
    hint: str | None
    if "function" in given:
        hint = FUNCTION
    elif "unsupported" in given:
        defining = {"lower", "upper", "kind", "options"} & set(given)
        hint = ANOTHER if defining or "feasiblespace" in named else None
    else:
        hint = _translate(named, words, values, conditional)
        if hint is None and ("distribution" in named or (words and _defines_range(given))):
            hint = ANOTHER
    if hint is None or not conditional:
        return hint
    return f"{hint}, with the same `when`"


def _defines_range(given: Mapping[str, Node]) -> bool:
    if "lower" in given or "upper" in given:
        return True
    return "value" in given and given["value"].is_list


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
    tool, called, inside = match.groups()
    args = [arg.rpartition("=")[2].strip() for arg in inside.split(",")]
    if tool == "hp.":  # its arguments have another meaning
        args = []
    name = our_name("domain", called) or called
    if name in RULES:
        return _domain(name, args)
    if name in DOMAINS:
        options = f"[{inside}]"
        if inside.startswith("["):
            options = inside
        elif tool:  # its arguments may have another meaning
            options = "[...]"
        return f"write {{{name}: {options}}}"
    return ANOTHER


def _properties(given: Mapping[str, Node], is_distribution: bool) -> set[str] | None:
    """Return the properties of a distribution, such as {"float", "log"}.

    Return None if a key such as `type` has an unknown value.
    """
    properties: set[str] = set()
    if "log" in given and given["log"].value is True:
        properties.add("log")
    if "kind" in given:
        kind = given["kind"].value
        if not isinstance(kind, str):
            return None
        if normalized(kind) not in _WORDS:
            return {"other"} if is_distribution else None
        properties |= _WORDS[normalized(kind)]
    return properties


def _translate(
    named: Mapping[str, Node], words: set[str], values: str, conditional: bool
) -> str | None:
    """Return a hint that names the domain to write in place of a distribution.

    Return None if the keys do not define the values.
    """
    given = {_KEYS[name]: child for name, child in named.items()}
    if "lognormal" in words:
        return (
            "write {randn: [mean, sd]} for the logarithm of the value, and take the exponential "
            "in the loop"
        )
    kind = normalized(given["kind"].value) if "kind" in given else ""
    # W&B and Azure ML write the logarithms of the bounds
    if kind in _EXPONENTS and {"distribution", "minvalue"} & set(named):
        words = words | {"exponents"}
    has_bounds = "lower" in given or "upper" in given
    if not has_bounds and ("choice" in words or {"values", "choices"} & set(named)):
        options = given.get("options")
        if options is None and "choice" in words:
            options = given.get("value")
        if options is not None and options.is_list:
            if not options.value:
                return "write {choice: [...]} with at least one option"
            return f"write {{choice: {options.show(80)}}}"
    if "value" in given and ("constant" in words or set(named) <= {"value", "name"}):
        shown = given["value"].show(80)
        return f"write {{choice: [{shown}]}}" if conditional else f"write the value itself: {shown}"
    step = "1" if "step" in words else None
    if "step" in given:
        step = _number(given["step"])
        if step is None:
            return None
    if "normal" in words and has_bounds:
        return ANOTHER
    if "normal" in words or set(named) == {"mu", "sigma"}:
        args = [_number(given.get("mean")) or "0", _number(given.get("sd")) or "1"]
        return _domain("qrandn", [*args, step]) if step else _domain("randn", args)
    if words & {"choice", "constant", "other"}:
        return None
    return _range(given, words, step, values)


def _range(given: Mapping[str, Node], words: set[str], step: str | None, values: str) -> str | None:
    """Return a hint that names the domain to write in place of a range of numbers.

    Return None if the range does not have two bounds.
    """
    lower = _number(given.get("lower"))
    upper = _number(given.get("upper"))
    if lower is None or upper is None:
        return None
    log = "log" if "log" in words else ""
    note = ""
    if "exponents" in words or (log and "log" not in given and float(lower) <= 0):
        note = f" (e^{lower}, e^{upper})"
        lower = _power(lower)
        upper = _power(upper)
    if step and float(step) > 0 and math.isfinite(float(upper)):
        low, high, q = (exact(float(text)) for text in (lower, upper, step))
        if (high - low) % q or ("step" in words and low % q):
            note += f" (the steps of {step} between {lower} and {upper})"
            if "step" in words:  # the values of `q_uniform` are multiples of q
                low = math.ceil(low / q) * q
            high = low + (high - low) // q * q
            lower = f"{float(low):.12g}"
            upper = f"{float(high):.12g}"
    arguments = [lower, upper, step] if step else [lower, upper]
    q_prefix = "q" if step else ""
    floats = _domain(f"{q_prefix}{log}uniform", arguments) if values != "integers" else None
    integers = None
    if values != "floats" and all(isinstance(scalar(text), int) for text in arguments):
        if step in (None, "1"):  # other tools include the upper bound
            integers = _domain(f"{log}randint", [lower, str(int(scalar(upper) or 0) + 1)])
        else:
            integers = _domain(f"q{log}randint", arguments)
    if floats is None or (integers and words & {"int", "step"}):
        return integers and integers + note
    if "float" in words or integers is None:
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
    shown = f"{{{kind}: [{', '.join(args)}]}}"
    if next(argument_problems(kind, [scalar(arg) for arg in args]), None) is None:
        return f"write {shown}"
    rule = RULES[kind]
    steps = " and an upper bound that is lower plus a multiple of q" if "q" in rule.args else ""
    return f"write {{{kind}: [{', '.join(rule.args)}]}} with {rule.text}{steps}"
