"""Parse text columns to numbers, as the key `data.parse` says.

Bundles contain this module, so that they accept the raw text.

The rules are:

    number         `$1,234.50`, `1 234.5 EUR`, `(12.00)`   to 1234.5, 1234.5, -12.0
                   `45%`, `>20`, `10,000+`                 to 45.0, 20.0, 10000.0
                   `1.2k`, `19M`, `3bn`                    to 1200.0, 19e6, 3e9
    decimal_comma  `1.234,50 €`, `1 234,5`                 to 1234.5, 1234.5
    unit bhp       `74 bhp`, `74`                          to 74.0, 74.0
    duration       `2h 50m`, `90 min`, `1:23:45`           to seconds
    a date format  `31/01/2026` for `%d/%m/%Y`             to 20484.0, the days since 1970-01-01
    time FORMAT    `08:46` for `time %H:%M`                to the seconds since midnight

A rule that ends in ` or missing` reads texts that do not fit as missing values.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sweeps.core.errors import InputError
from sweeps.data.checks.label_checks import as_text

from .column_values import InvalidColumnValue

NUMBER = "number"
DECIMAL_COMMA = "decimal_comma"
DURATION = "duration"
UNIT = "unit "
TIME = "time "
OR_MISSING = " or missing"
# Factors of the magnitudes behind a number
_SIZES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "mn": 1e6, "B": 1e9, "bn": 1e9}
# Codes of ISO 4217 of the currencies in use, without funds and metals.
CODES = (
    "AED|AFN|ALL|AMD|AOA|ARS|AUD|AWG|AZN|BAM|BBD|BDT|BGN|BHD|BIF|BMD|BND|BOB|BRL|BSD|BTN|BWP|BYN|"
    "BZD|CAD|CDF|CHF|CLP|CNY|COP|CRC|CUP|CVE|CZK|DJF|DKK|DOP|DZD|EGP|ERN|ETB|EUR|FJD|FKP|GBP|GEL|"
    "GHS|GIP|GMD|GNF|GTQ|GYD|HKD|HNL|HTG|HUF|IDR|ILS|INR|IQD|IRR|ISK|JMD|JOD|JPY|KES|KGS|KHR|KMF|"
    "KPW|KRW|KWD|KYD|KZT|LAK|LBP|LKR|LRD|LSL|LYD|MAD|MDL|MGA|MKD|MMK|MNT|MOP|MRU|MUR|MVR|MWK|MXN|"
    "MYR|MZN|NAD|NGN|NIO|NOK|NPR|NZD|OMR|PAB|PEN|PGK|PHP|PKR|PLN|PYG|QAR|RON|RSD|RUB|RWF|SAR|SBD|"
    "SCR|SDG|SEK|SGD|SHP|SLE|SOS|SRD|SSP|STN|SVC|SYP|SZL|THB|TJS|TMT|TND|TOP|TRY|TTD|TWD|TZS|UAH|"
    "UGX|USD|UYU|UZS|VES|VND|VUV|WST|XAF|XCD|XCG|XOF|XPF|YER|ZAR|ZMW|ZWG"
)
# A sign of a currency such as `$` and `US$`, or its code. Other letters are no unit, so that the
# order number `ORD-100` is no amount.
_UNIT = rf"(?:[A-Z]{{0,2}}\p{{Sc}}|Rs\.?|{CODES})"
_MINUS = "\u2212"  # the mathematical sign, which is longer than a hyphen
_SPACES = "[\u00a0\u202f\u2009]"  # spaces at which a line is not broken, and a thin space
_EPOCH = pd.Timestamp("1970-01-01")


def _pattern(group: str, point: str, unit: str, sizes: str) -> str:
    """Return a regular expression for a number.

    Args:
        group: Pattern of the separator between groups of digits.
        point: Pattern of the separator of decimals.
        unit: Pattern of the unit.
        sizes: Pattern of the magnitudes.
    """
    # India groups hundreds of thousands by two digits. `0,196` has no thousands, so its comma is a
    # decimal point
    thousands = rf"[1-9]\d{{0,2}}(?:{group}\d{{2}})*(?:{group}\d{{3}})+"
    digits = rf"(?:{thousands}|\d+)(?:{point}\d*)?|{point}\d+"
    return (
        rf"^(?P<open>\(?)\s*(?:[<>≤≥~≈]=?)?\s*(?P<sign>[+-]?)\s*{unit}?"
        rf"\s*(?P<inner>[+-]?)\s*(?P<digits>{digits})"
        rf"(?P<exponent>(?:[eE][+-]?\d+)?)\s?(?P<size>{sizes})\+?\s*(?:{unit}|%)?\s*(?P<close>\)?)$"
    )


# Patterns of the separators of groups of digits and of decimals
_SEPARATORS = {NUMBER: ("[, ']", r"\."), DECIMAL_COMMA: ("[. ']", ",")}
_EXAMPLES = {NUMBER: "$1,234.50", DECIMAL_COMMA: "1.234,50", DURATION: "2h 50m"}
_DURATION = (
    r"(?i)^-?(?:\d+(?:\.\d+)?\s*(?:w(?:eeks?)?|d(?:ays?)?|h(?:rs?|ours?)?"
    r"|m(?:ins?|inutes?)?|s(?:ecs?|econds?)?)[\s,]*)*"
    r"(?:\d+:\d\d:\d\d(?:\.\d+)?)?$"
)


def _number_pattern(rule: str) -> str | None:
    """Return the regular expression of a rule for numbers.

    Return None for a rule for dates, times and durations.
    """
    if rule.startswith(UNIT):
        return _pattern(*_SEPARATORS[NUMBER], rf"(?:\Q{rule.removeprefix(UNIT)}\E)", "")
    if rule in _SEPARATORS:
        return _pattern(*_SEPARATORS[rule], _UNIT, "|".join(sorted(_SIZES, reverse=True)))
    return None


def base_rule(rule: str) -> str:
    """Return a rule without ` or missing`."""
    return rule.removesuffix(OR_MISSING)


def describe_rule(rule: str) -> str:
    """Return the demand that a rule makes on a value, for messages."""
    text = f"must fit the rule {rule.removeprefix(TIME)}"
    example = _EXAMPLES.get(base_rule(rule))
    return f"{text}, such as {example}" if example else text


def is_lenient(rule: str) -> bool:
    """Return whether a rule reads texts that do not fit as missing values."""
    return rule.endswith(OR_MISSING)


def count_misfits(raw: pd.DataFrame, parsed: Mapping[str, pd.Series]) -> Counter[str]:
    """Return the number of texts in each column that do not fit its rule.

    Such texts are read as missing values.

    Args:
        raw: The columns with their texts.
        parsed: The columns after `parse_values`.
    """
    counts = {name: (values.isna() & raw[name].notna()).sum() for name, values in parsed.items()}
    return Counter({name: int(count) for name, count in counts.items() if count})


def misfits_note(counts: Mapping[str, int], split: str) -> tuple[str, ...]:
    """Return a note about the texts of a split that were read as missing values.

    The result is a tuple of one note, or () if there are no such texts. See `count_misfits`.
    """
    if not counts:
        return ()
    texts = ", ".join(f"{count:,} in `{name}`" for name, count in counts.items())
    note = f"data.{split} has texts that do not fit their rule in data.parse, read as missing"
    return (f"{note}: {texts}",)


def parse_texts(texts: pa.Array, rule: str) -> pa.Array:
    """Convert texts to float64. A text that does not fit the rule becomes null.

    Args:
        texts: n texts, which may be null.
        rule: See the module's docstring.
    """
    rule = base_rule(rule)
    pattern = _number_pattern(rule)
    if pattern is None:
        return pa.array(_moments(texts, rule), pa.float64(), from_pandas=True)
    texts = pc.replace_substring(texts, _MINUS, "-")
    texts = pc.utf8_trim_whitespace(pc.replace_substring_regex(texts, _SPACES, " "))
    # The groups of `_pattern`; all are null if a text does not fit.
    opened, sign, inner, digits, exponent, size, closed = pc.extract_regex(texts, pattern).flatten()
    group = _SEPARATORS.get(rule, _SEPARATORS[NUMBER])[0]
    digits = pc.replace_substring(pc.replace_substring_regex(digits, group, ""), ",", ".")
    plain = pc.binary_join_element_wise(digits, exponent, pa.scalar("", digits.type))
    size_index = pc.index_in(size, value_set=pa.array(_SIZES, size.type))
    factors = pa.array(_SIZES.values()).take(size_index)
    numbers = pc.multiply(plain.cast(pa.float64()), factors)
    # A number in parentheses is negative, and one with a minus in parentheses is positive.
    minus = pc.or_(pc.equal(sign, "-"), pc.equal(inner, "-"))
    negative = pc.xor(minus, pc.equal(opened, "("))
    numbers = pc.if_else(negative, pc.negate(numbers), numbers)
    balanced = pc.equal(pc.utf8_length(opened), pc.utf8_length(closed))
    return pc.if_else(balanced, numbers, pa.scalar(None, pa.float64()))


def _moments(texts: pa.Array, rule: str) -> np.ndarray:
    """Convert texts of durations, times and dates to numbers.

    Durations become seconds, times become seconds since midnight, and dates become days since
    1970-01-01.
    """
    if rule == DURATION:
        fits = pc.match_substring_regex(texts, _DURATION)
        # pandas reads units of one letter: `2h 50m` for `2 hours 50 min`.
        short = pc.replace_substring_regex(pc.utf8_lower(texts), "([wdhms])[a-z]*", r"\1")
        for unit in "wd":  # pandas has upper case letters for weeks and days
            short = pc.replace_substring(short, unit, unit.upper())
        known = pc.if_else(fits, short, pa.scalar(None, short.type))
        spans = pd.to_timedelta(pd.Series(known.to_pylist(), dtype=object), errors="coerce")
        return np.asarray(spans.dt.total_seconds())
    series = pd.Series(texts.to_pylist(), dtype=object)
    dates = pd.to_datetime(series, format=rule.removeprefix(TIME), errors="coerce", utc=True)
    if rule.startswith(TIME):
        return np.asarray((dates - dates.dt.normalize()).dt.total_seconds())
    return _days(dates)


def _days(dates: pd.Series) -> np.ndarray:
    """Return the days since 1970-01-01 of each date; NaN for a missing date."""
    naive = dates.dt.tz_localize(None) if dates.dt.tz is not None else dates
    return np.asarray(((naive - _EPOCH) / pd.Timedelta(days=1)).astype("float64"))


def parse_values(values: pd.Series, rule: str, name: str) -> pd.Series:
    """Convert a column to float64. Missing values become NaN.

    Args:
        values: Texts. Numbers are also allowed, because a table may have been read with other
            types: under a rule for numbers they stay as they are, and under a date format a number
            such as 20260131 is the text of a date. Dates stay dates.
        rule: See the module's docstring.
        name: Name of the column, for messages.

    Raises:
        InputError: A value does not fit the rule. The error names the first such value and its row.
    """
    if _number_pattern(base_rule(rule)) and pd.api.types.is_numeric_dtype(values.dtype):
        return pd.Series(values.to_numpy("float64", na_value=np.nan), index=values.index)
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        return pd.Series(_days(values), index=values.index)
    # Each distinct text is parsed once. The code of a missing value is -1.
    codes, distinct = pd.factorize(values.astype(object).where(values.notna(), None))
    parsed = parse_texts(pa.array([as_text(value) for value in distinct], pa.large_string()), rule)
    numbers = np.append(parsed.to_numpy(zero_copy_only=False), np.nan).astype("float64")[codes]
    wrong = np.isnan(numbers) & (codes >= 0)
    if wrong.any() and not is_lenient(rule):
        row = int(wrong.argmax())
        raise InputError(
            InvalidColumnValue.create(
                name, f"{describe_rule(rule)} (data.parse)", row, values.iloc[row]
            )
        )
    return pd.Series(numbers, index=values.index)
