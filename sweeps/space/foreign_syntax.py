"""Translate distributions of other tools, such as `{min: 0, max: 1}`, into our domains."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from sweeps.space.domains import DOMAINS, RULES, argument_problems
from sweeps.space.nodes import Node, scalar
from sweeps.space.synonyms import known, plain

_LOWER = ("min", "low", "lower", "minval", "minvalue", "minimum")
_UPPER = ("max", "high", "upper", "maxval", "maxvalue", "maximum")
_STEP = ("q", "step", "stepsize")
_KIND = ("distribution", "type", "parametertype", "valuetype", "scale", "scaletype", "scalingtype", "sampling")
_LOG = ("log", "logscale", "uselog")
_VALUES = ("values", "vals", "choices", "options", "categories")
_VALUE = ("value", "val")
_MEAN = ("mu", "mean", "loc")
_SD = ("sigma", "std", "sd")
_WITHOUT_MEANING = ("name", "default", "defaultvalue", "probabilities", "weights", "isordered", "sortvalues")
_SPACE = "feasiblespace"  # Katib's key, which contains the bounds or the list
_VOCABULARY = {
    *(*_LOWER, *_UPPER, *_STEP, *_KIND, *_LOG, *_VALUES, *_VALUE, *_MEAN, *_SD, *_WITHOUT_MEANING),
    *("bounds", "base", _SPACE),
}
# Names of distributions in other tools, and the properties that each name implies.
_WORDS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("uniform", "float", "double", "real", "continuous", "floatuniform", "uniformfloat"), frozenset({"float"})),
    **dict.fromkeys(("int", "integer", "long", "intuniform", "uniformint", "uniforminteger", "randint"), frozenset({"int"})),
    **dict.fromkeys(("quniform", "discreteuniform"), frozenset({"float", "step"})),
    **dict.fromkeys(("loguniform", "loguniformvalues", "reciprocal", "uniformlogfloat"), frozenset({"float", "log"})),
    **dict.fromkeys(("qloguniform", "qloguniformvalues"), frozenset({"float", "log", "step"})),
    **dict.fromkeys(("log", "logarithmic"), frozenset({"log"})),
    **dict.fromkeys(("normal", "randn"), frozenset({"normal"})),
    **dict.fromkeys(("qnormal", "qrandn"), frozenset({"normal", "step"})),
    **dict.fromkeys(("categorical", "choice", "discrete", "ordinal"), frozenset({"choice"})),
    **dict.fromkeys(("constant", "const", "fixed"), frozenset({"constant"})),
    **dict.fromkeys(("lognormal", "qlognormal"), frozenset({"lognormal"})),
    **dict.fromkeys(("invloguniform", "invloguniformvalues"), frozenset({"other"})),
    "range": frozenset(),
}
_LINEAR = ("linear", "auto")  # values of a scale key that mean no logarithm
ANOTHER = "write {uniform: [lower, upper]}, {choice: [...]} or another domain"
# A call of Ray Tune, Hyperopt, Optuna or NumPy.
_CALL = re.compile(r"(?:(?:ray\.)?tune|hp|trial|(?:np|numpy)\.random)\.(\w+)\((.*)\)", re.DOTALL)
_EXPONENTS = ("loguniform", "qloguniform")  # values of W&B's `distribution` whose bounds are exponents of e


def translate_mapping(node: Node, values: str = "anything") -> str | None:
    """Return the domain to write in place of another tool's distribution. Return None for any other mapping.

    A mapping is a distribution only if other tools use all of its keys, and if the keys together define the values. `{type: adam, lr: 0.1}`
    and `{value: 3, other: 4}` are therefore not distributions.

    Args:
        node: A mapping.
        values: "integers" or "floats" if a domain may have only these values here.

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
    given = {plain(key).lstrip("_"): child for key, child in node.value.items() if key != "when"}
    if set(given) == {"samplefrom"}:
        return "a value cannot be a function of others; give it a `when`, or compute it in the loop"
    if not given or not set(given) <= _VOCABULARY:
        return None
    if (inner := given.pop(_SPACE, None)) is not None:
        inside = {"list": "values"}  # Katib's word
        if not inner.is_map or not all(isinstance(key, str) and inside.get(plain(key), plain(key)) in _VOCABULARY for key in inner.value):
            return None
        given |= {inside.get(plain(key), plain(key)): child for key, child in inner.value.items()}
    said: set[str] = set()
    for key in _KIND:
        if key in given:
            word = given[key].value
            if not isinstance(word, str):
                return None
            if key.startswith(("scal", "sampl")) and plain(word) in _LINEAR:
                continue
            if plain(word) not in _WORDS:
                return ANOTHER if key == "distribution" else None
            said |= _WORDS[plain(word)]
    if any(key in given and given[key].value is True for key in _LOG):
        said.add("log")
    if "lognormal" in said:
        return "write {randn: [mean, sd]} for its logarithm, and take the exponential in the loop"
    text = _options(given, said) or _constant(given, said, "when" in node.value) or _normal(given, said) or _range(given, said, values)
    if text is None and "distribution" in given:
        text = ANOTHER
    return f"{text}, with the same `when`" if text and "when" in node.value else text


def translate_call(text: str) -> str | None:
    """Return the domain to write in place of text that is a call of another tool. Return None for any other text.

    >>> translate_call("tune.loguniform(1e-4, 1e-1)")
    'write {loguniform: [1e-4, 1e-1]}'
    >>> translate_call("trial.suggest_int('depth', 1, 8)")
    'write {randint: [lower, upper]} with lower < upper (upper is excluded)'
    >>> translate_call("tune of the day") is None
    True
    """
    match = _CALL.fullmatch(text.strip())
    if match is None:
        return None
    name = known("domain", match[1]) or match[1]
    if name in RULES:
        return _domain(name, [arg.strip() for arg in match[2].split(",")])
    return f"write {{{name}: {match[2] if match[2].startswith('[') else '[...]'}}}" if name in DOMAINS else ANOTHER


def _first(given: Mapping[str, Node], names: Iterable[str]) -> Node | None:
    return next((given[name] for name in names if name in given), None)


def _options(given: Mapping[str, Node], said: set[str]) -> str | None:
    """Translate a list of values."""
    found = _first(given, (*_VALUES, "value", "bounds") if "choice" in said else ("values", "choices"))
    if found is None or not found.is_list or _first(given, (*_LOWER, *_UPPER)) is not None:
        return None
    return f"write {{choice: {found.show(80)}}}" if found.value else "write {choice: [...]} with at least one option"


def _constant(given: Mapping[str, Node], said: set[str], condition: bool) -> str | None:
    """Translate a constant. With a condition it becomes a choice with one option."""
    found = _first(given, _VALUE)
    if found is None or not (("constant" in said) or set(given) <= {"value", "name"}):
        return None
    return f"write {{choice: [{found.show(80)}]}}" if condition else f"write the value itself: {found.show(80)}"


def _normal(given: Mapping[str, Node], said: set[str]) -> str | None:
    """Translate a normal distribution."""
    if "normal" not in said and set(given) != {"mu", "sigma"}:
        return None
    mean, sd, step = (_number(_first(given, names)) for names in (_MEAN, _SD, _STEP))
    args = [mean or "0", sd or "1"]
    return _domain("qrandn", [*args, step or "1"]) if step or "step" in said else _domain("randn", args)


def _range(given: Mapping[str, Node], said: set[str], wanted: str) -> str | None:
    """Translate a range of numbers."""
    if said & {"choice", "constant", "other"}:
        return None
    bounds = given.get("bounds") or (given.get("value") if "float" in said else None)
    if bounds is not None and bounds.is_list and len(bounds.value) == 2:
        ends = [_number(child) for child in bounds.value]
    else:
        ends = [_number(_first(given, names)) for names in (_LOWER, _UPPER)]
    lower, upper = ends
    if lower is None or upper is None:
        return None
    values = (scalar(lower), scalar(upper))
    step = _number(_first(given, _STEP)) or ("1" if "step" in said else None)
    if (base := _base(given)) is not None:
        try:
            lower, upper = (f"{base ** float(end):.6g}" for end in (lower, upper))
        except OverflowError:
            return "write {loguniform: [lower, upper]} with 0 < lower < upper"
        said, values = said | {"log", "float"}, (scalar(lower), scalar(upper))
    log = "log" if "log" in said else ""
    whole = [None if wanted == "floats" else _whole(log, values, lower, step)]
    whole = whole if all(isinstance(value, int) for value in values) and (step is None or isinstance(scalar(step), int)) else [None]
    kind = f"{'q' if step else ''}{log}uniform"
    floats = None if wanted == "integers" else _domain(kind, [lower, upper, *([step] if step else [])])
    if "int" in said:
        return whole[0] or floats
    if "float" in said or whole[0] is None:
        return floats or whole[0]
    return whole[0] if floats is None else f"{whole[0]} for integers, or {floats.removeprefix('write ')}"


def _whole(log: str, values: tuple[object, ...], lower: str, step: str | None) -> str:
    """Return a range of integers. Other tools include the upper bound."""
    if step not in (None, "1"):
        return _domain(f"q{log}randint", [lower, str(values[1]), str(step)])
    return _domain(f"{log}randint", [lower, str(values[1] + 1)])  # type: ignore[operator]


def _base(given: Mapping[str, Node]) -> float | None:
    """Return the base if the bounds are exponents, else None."""
    if "distribution" in given and plain(str(given["distribution"].value)) in _EXPONENTS:
        return math.e
    if "type" in given and plain(str(given["type"].value)) == "log":
        return float(scalar(_number(given.get("base")) or "10"))  # type: ignore[arg-type]
    return None


def _number(node: Node | None) -> str | None:
    """Return a number as written, with or without quotes. Return None for anything else."""
    if node is None or node.is_map or node.is_list or isinstance(node.value, bool) or node.value is None:
        return None
    text = node.value if isinstance(node.value, str) else node.raw or str(node.value)
    try:
        value = scalar(text)
    except ValueError:
        return None
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return text if good else None


def _domain(kind: str, args: list[str]) -> str:
    """Return a domain with these arguments, or its rule if the arguments break it."""
    shown = f"{{{kind}: [{', '.join(args)}]}}"
    if next(argument_problems(kind, [scalar(arg) for arg in args], ""), None) is None:
        return f"write {shown}"
    rule = RULES[kind]
    return f"write {{{kind}: [{', '.join(rule.args)}]}} with {rule.text}{' and multiples of q' if 'q' in rule.args else ''}"
