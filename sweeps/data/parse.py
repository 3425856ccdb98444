"""Parse text columns to numbers, as the key `data.parse` says. Bundles contain this module, so that they accept the raw text.

A rule is `currency`, `decimal_comma`, or a date format such as `%d/%m/%Y`:

    currency       `$1,234.50`, `1 234.5 EUR`, `(12.00)`, `45%`    to 1234.5, 1234.5, -12.0, 45.0
    decimal_comma  `1.234,50 €`, `1 234,5`                         to 1234.5, 1234.5
    a date format  `31/01/2026`                                    to the days since 1970-01-01, here 20484.0
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sweeps.core.errors import InputError
from sweeps.data.column_values import InvalidValue, format_value

CURRENCY, DECIMAL_COMMA = "currency", "decimal_comma"
_SIGN = "[+-]?"
# Codes of ISO 4217 of the currencies in use, without funds and metals.
CODES = (
    "AED|AFN|ALL|AMD|AOA|ARS|AUD|AWG|AZN|BAM|BBD|BDT|BGN|BHD|BIF|BMD|BND|BOB|BRL|BSD|BTN|BWP|BYN|BZD|CAD|CDF|CHF|CLP|CNY|COP|CRC|"
    "CUP|CVE|CZK|DJF|DKK|DOP|DZD|EGP|ERN|ETB|EUR|FJD|FKP|GBP|GEL|GHS|GIP|GMD|GNF|GTQ|GYD|HKD|HNL|HTG|HUF|IDR|ILS|INR|IQD|IRR|ISK|"
    "JMD|JOD|JPY|KES|KGS|KHR|KMF|KPW|KRW|KWD|KYD|KZT|LAK|LBP|LKR|LRD|LSL|LYD|MAD|MDL|MGA|MKD|MMK|MNT|MOP|MRU|MUR|MVR|MWK|MXN|MYR|"
    "MZN|NAD|NGN|NIO|NOK|NPR|NZD|OMR|PAB|PEN|PGK|PHP|PKR|PLN|PYG|QAR|RON|RSD|RUB|RWF|SAR|SBD|SCR|SDG|SEK|SGD|SHP|SLE|SOS|SRD|SSP|"
    "STN|SVC|SYP|SZL|THB|TJS|TMT|TND|TOP|TRY|TTD|TWD|TZS|UAH|UGX|USD|UYU|UZS|VES|VND|VUV|WST|XAF|XCD|XCG|XOF|XPF|YER|ZAR|ZMW|ZWG"
)
# A sign of a currency, or its code. Other letters are no unit, so that the order number `ORD-100` is no amount.
_UNIT = rf"(?:\p{{Sc}}|{CODES})"
_MINUS, _SPACES = "\u2212", "[\u00a0\u202f\u2009]"
_EPOCH = pd.Timestamp("1970-01-01")


def _pattern(group: str, point: str) -> str:
    """Return a regular expression for a number with these separators of thousands and of decimals."""
    digits = rf"(?:(?:\d{{1,3}}(?:{group}\d{{3}})+|\d+)(?:{point}\d*)?|{point}\d+)"
    return rf"^\(?\s*{_SIGN}\s*{_UNIT}?\s*{_SIGN}\s*{digits}(?:[eE]{_SIGN}\d+)?\s*(?:{_UNIT}|%)?\s*\)?$"


_PATTERNS = {CURRENCY: _pattern("[, ']", r"\."), DECIMAL_COMMA: _pattern("[. ']", ",")}
# What is left of a number without its signs of currencies and separators, by the rule.
_REMOVED = {CURRENCY: rf"{_UNIT}|[, '%()]", DECIMAL_COMMA: rf"{_UNIT}|[. '%()]"}


def describe(rule: str) -> str:
    """Return what a value must be under a rule, for messages."""
    examples = {
        CURRENCY: "an amount such as $1,234.50",
        DECIMAL_COMMA: "an amount such as 1.234,50",
    }
    return examples.get(rule) or f"a date of the format {rule}"


def parse_texts(texts: pa.Array, rule: str) -> pa.Array:
    """Convert texts to float64. A text that does not fit the rule becomes null.

    Args:
        texts: n texts, which may be null.
        rule: see the module's docstring.
    """
    if rule not in _PATTERNS:
        return _days(
            pd.to_datetime(
                pd.Series(texts.to_pylist(), dtype=object), format=rule, errors="coerce", utc=True
            )
        )
    texts = pc.utf8_trim_whitespace(
        pc.replace_substring_regex(pc.replace_substring(texts, _MINUS, "-"), _SPACES, " ")
    )
    matched = pc.match_substring_regex(texts, _PATTERNS[rule])
    opened, closed = pc.starts_with(texts, "("), pc.ends_with(texts, ")")
    matched = pc.and_(matched, pc.equal(opened, closed))
    bare = pc.replace_substring_regex(
        pc.if_else(matched, texts, pa.scalar(None, texts.type)), _REMOVED[rule], ""
    )
    bare = pc.replace_substring(bare, ",", ".") if rule == DECIMAL_COMMA else bare
    numbers = pc.replace_substring_regex(bare, r"^\+", "").cast(pa.float64())
    return pc.if_else(opened, pc.negate(numbers), numbers)


def _days(dates: pd.Series) -> pa.Array:
    """Return the days since 1970-01-01 of each date; null for a missing date."""
    naive = dates.dt.tz_localize(None) if dates.dt.tz is not None else dates
    return pa.array(
        ((naive - _EPOCH) / pd.Timedelta(days=1)).to_numpy("float64", na_value=np.nan),
        pa.float64(),
        from_pandas=True,
    )


def parse_values(values: pd.Series, rule: str, name: str) -> pd.Series:
    """Convert a column to float64. Missing values and blank texts become NaN.

    Args:
        values: texts. Numbers are also allowed, because a table may have been read with other types: under `currency` and `decimal_comma`
            numbers stay as they are, and under a date format a number such as 20260131 is the text of a date. Dates stay dates.
        rule: see the module's docstring.
        name: name of the column, for messages.

    Raises:
        InputError: a value does not fit the rule. The error names the first such value and its row.
    """
    if rule in _PATTERNS and pd.api.types.is_numeric_dtype(values.dtype):
        return pd.Series(values.to_numpy("float64", na_value=np.nan), index=values.index)
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        return pd.Series(_days(values).to_numpy(zero_copy_only=False), index=values.index)
    present = values.notna()
    codes, distinct = pd.factorize(values.astype(object).where(present, None))
    texts = pa.array([format_value(value) for value in distinct], pa.large_string())
    parsed = parse_texts(texts, rule)
    blank = pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(texts)), 0)
    wrong = (
        pc.and_(pc.is_null(parsed), pc.invert(blank)).to_numpy(zero_copy_only=False).astype(bool)
    )
    if wrong.any():
        row = int(np.flatnonzero(np.append(wrong, False)[codes])[0])
        raise InputError(
            InvalidValue.create(
                name, f"must hold {describe(rule)} (data.parse)", row, values.iloc[row]
            )
        )
    numbers = np.append(parsed.to_numpy(zero_copy_only=False).astype("float64"), np.nan)
    return pd.Series(numbers[codes], index=values.index)
