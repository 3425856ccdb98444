"""Translate distributions in the syntax of other tools.

An example is `{min: 0, max: 1}`, into domains of the space file.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping

from sweeps.core.json_files import is_number
from sweeps.space.domains import DOMAINS, RULES, argument_problems, exact
from sweeps.space.nodes import Node, scalar
from sweeps.space.synonyms import normalized, our_name

# Maps each key of distributions in other tools to its meaning.
_KEYS: Mapping[str, str] = {
    name: meaning
    for meaning, names in {
        "lower": "min low lower minval minvalue minimum",
        "upper": "max high upper maxval maxvalue maximum",
        "step": "q step stepsize",
        "kind": "distribution type parametertype valuetype space",
        "scale": "scale scaletype scalingtype sampling",
        "log": "log logscale uselog",
        "options": "values vals choices options categories",
        "value": "value val",
        "mean": "mu mean loc",
        "sd": "sigma std sd",
        "bounds": "bounds",
        "nested": "feasiblespace attributes doublevaluespec integervaluespec discretevaluespec",
        "ignored": "name parameterid default defaultvalue isordered sortvalues",
        "lost": "probabilities weights count",
        "base": "base",
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
# Maps keys of Katib, inside `feasibleSpace`, to keys with this meaning: its bounds are never
# exponents.
_INNER = {"list": "values", "distribution": "scale"}
_EXPONENTS = ("loguniform", "qloguniform")
ANOTHER = "write {uniform: [lower, upper]}, {choice: [...]} or another domain"
# A call of Ray Tune, Hyperopt, Optuna or NumPy. Or a domain of Hydra, which may be inside others,
# such as `tag(log, interval(1, 9))`.
_CALL = re.compile(
    r"((?:(?:tag|int|float|sort|shuffle)\((?:\w+\s*,\s*)*)*)"
    r"(|(?:ray\.)?tune\.|hp\.|trial\.|(?:np|numpy)\.random\.)(\w+)\((.*?)\)+",
    re.DOTALL,
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

    >>> from sweeps.space.yaml12 import parse
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
        normalized(key).lstrip("_"): child for key, child in node.value.items() if key != "when"
    }
    if set(named) == {"samplefrom"}:
        return (
            "a value cannot be a function of other values; use `when`, or compute the value in "
            "the loop"
        )
    nested = [key for key in named if _KEYS.get(key) == "nested" and named[key].is_map]
    for inside in [named.pop(key) for key in nested]:
        for key, child in inside.value.items():
            named[_INNER.get(key, normalized(str(key)))] = child
    named = {key: child for key, child in named.items() if child.value is not None}
    if not named or not set(named) <= set(_KEYS):
        return None
    words = _properties(named)
    if words is None:
        return None
    text = _translate(named, words, values, "when" in node.value)
    given = {_KEYS[key] for key in named}
    a_range = words and ({"lower", "upper", "bounds"} & given or _is_list(named.get("value")))
    if text is None and (nested or "distribution" in named or a_range):
        text = ANOTHER
    if text and (lost := [key for key in named if _KEYS[key] == "lost"]):
        text += f" (nothing here stands for {', '.join(lost)})"
    return f"{text}, with the same `when`" if text and "when" in node.value else text


def translate_call(text: str) -> str | None:
    """Return a hint that names the domain to write in place of a function call of another tool.

    Return None for any other text.

    >>> translate_call("tune.loguniform(1e-4, 1e-1)")
    'write {loguniform: [1e-4, 1e-1]}'
    >>> translate_call("trial.suggest_int('depth', 1, 8)")
    'write {randint: [lower, upper]} with lower < upper (upper is excluded)'
    >>> translate_call("tag(log, interval(1e-5, 1e-2))")
    'write {loguniform: [1e-5, 1e-2]}'
    >>> translate_call("tune of the day") is None
    True
    """
    match = _CALL.fullmatch(text.strip())
    if match is None or not (match[2] or match[3] in (*DOMAINS, "interval", "range")):
        return None
    around, tool, called, inside = match.groups()
    wrapped = set(re.findall(r"\w+", around))
    args = [arg.rpartition("=")[2].strip() for arg in inside.split(",")]
    name = our_name("domain", called) or called
    if called == "interval":
        name = f"{'log' * ('log' in wrapped)}{'randint' if 'int' in wrapped else 'uniform'}"
    if tool == "hp.":  # the first argument is a label
        args = args[1:]
    # `_domain` refuses what is no number
    with contextlib.suppress(ValueError, IndexError, ArithmeticError):
        if tool == "hp." and called in _EXPONENTS:
            args[:2] = (f"{math.exp(float(arg)):.6g}" for arg in args[:2])
        if called == "interval" and "int" in wrapped:  # Hydra includes the upper bound
            args[1] = str(int(args[1]) + 1)
        if called == "range" and len(args) == 3:
            start, stop, step = (exact(float(arg)) for arg in args)
            args[1] = f"{float(stop - ((stop - start) % step or step)):.12g}"
            name = "quniform" if "." in "".join(args) else "qrandint"
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


def _properties(named: Mapping[str, Node]) -> set[str] | None:
    """Return the properties of a distribution, such as {"float", "log"}.

    Return None if a key such as `type` has an unknown value.
    """
    properties: set[str] = set()
    for key, child in named.items():
        meaning = _KEYS[key]
        if meaning == "log" and child.value is True:
            properties.add("log")
        if meaning not in ("kind", "scale"):
            continue
        if not isinstance(child.value, str):
            return None
        word = normalized(child.value)
        if word in _WORDS:
            properties |= _WORDS[word]
        elif word in ("linear", "auto", "unitlinearscale") and meaning == "scale":
            continue  # these scales are the default
        elif key in ("distribution", "sampling", "scaletype", "scalingtype"):
            properties.add("other")
        else:
            return None
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
    name = our_name("domain", kind) or kind
    if set(named) == {"type", "value"} and name in RULES and _is_list(given["value"]):  # NNI
        return _domain(name, [_number(arg) or "" for arg in given["value"].value])
    # W&B and Azure ML write the logarithms of the bounds
    powers = kind in _EXPONENTS and {"distribution", "minvalue"} & set(named)
    words |= {"exponents"} if powers or "base" in given else set()
    options = given.get("options") or (
        given.get("value") or given.get("bounds") if "choice" in words else None
    )
    is_range = "lower" in given or "upper" in given
    if (
        options is not None
        and options.is_list
        and not is_range
        and ("choice" in words or {"values", "choices"} & set(named))
    ):
        return (
            f"write {{choice: {options.show(80)}}}"
            if options.value
            else "write {choice: [...]} with at least one option"
        )
    if "value" in given and ("constant" in words or set(named) <= {"value", "name"}):
        shown = given["value"].show(80)
        return f"write {{choice: [{shown}]}}" if conditional else f"write the value itself: {shown}"
    step = "1" if "step" in words else None
    if "step" in given and (step := _number(given["step"])) is None:
        return None
    if step and "log" in words and "sampling" in named:  # Keras Tuner
        return "write {choice: [...]} with each value, because `step` is a factor here"
    if "normal" in words and is_range:
        return ANOTHER
    if "normal" in words or set(named) == {"mu", "sigma"}:
        args = [_number(given.get("mean")) or "0", _number(given.get("sd")) or "1"]
        return _domain("qrandn", [*args, step]) if step else _domain("randn", args)
    return None if words & {"choice", "constant", "other"} else _range(given, words, step, values)


def _range(given: Mapping[str, Node], words: set[str], step: str | None, values: str) -> str | None:
    """Return a hint that names the domain to write in place of a range of numbers.

    Return None if the range does not have two bounds.
    """
    pair = given.get("bounds")
    ends = (
        pair.value
        if pair is not None and pair.is_list
        else [given.get("lower"), given.get("upper")]
    )
    texts = [text for text in map(_number, ends) if text is not None]
    if len(ends) != 2 or len(texts) != 2:
        return None
    lower, upper = texts
    log, steps = "log" if "log" in words else "", [step] if step else []
    note = ""
    if "exponents" in words or (log and "log" not in given and float(lower) <= 0):
        base = _number(given.get("base")) or "e"
        note = f" ({base}^{lower}, {base}^{upper})"
        factor = math.log(max(float(base), 1)) if base != "e" else 1
        powers = (float(end) * factor for end in texts)
        lower, upper = (f"{math.exp(x) if x < 709 else math.inf:.6g}" for x in powers)
    if step and float(step) > 0 and math.isfinite(float(upper)):
        low, high, q = (exact(float(text)) for text in (lower, upper, step))
        if (high - low) % q or ("step" in words and low % q):
            note += f" (the steps of {step} between {lower} and {upper})"
            if "step" in words:  # the values of `q_uniform` are multiples of q
                low = math.ceil(low / q) * q
            high = low + (high - low) // q * q
            lower, upper = (f"{float(end):.12g}" for end in (low, high))
    floats = (
        None
        if values == "integers"
        else _domain(f"{'q' * bool(step)}{log}uniform", [lower, upper, *steps])
    )
    integers = None
    if values != "floats" and all(isinstance(scalar(text), int) for text in (lower, upper, *steps)):
        if step in (None, "1"):  # other tools include the upper bound
            integers = _domain(f"{log}randint", [lower, str(int(scalar(upper) or 0) + 1)])
        else:
            integers = _domain(f"q{log}randint", [lower, upper, step])
    if floats is None or (integers and words & {"int", "step"}):
        return integers and integers + note
    if "float" in words or integers is None:
        return floats + note
    return f"{integers} for integers, or {floats.removeprefix('write ')}{note}"


def _is_list(node: Node | None) -> bool:
    return node is not None and node.is_list


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
