"""Find out what the texts of a column are: numbers, dates, identifiers, prose or categories.

Pure functions.
"""

import re
from collections.abc import Iterator
from datetime import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sweeps.data.columns.missing import WORDS, null_markers
from sweeps.data.columns.parse import DECIMAL_COMMA, DURATION, NUMBER, TIME, UNIT, parse_texts

from .data_summary import Finding, short_text

# Smallest number of rows with a value for a finding about a column.
MIN_ROWS = 50
# A column identifies rows if this share of its values are distinct.
DISTINCT_SHARE = 0.95
# Other texts among numbers or dates are exceptions up to this share of the rows. One text may be
# more frequent.
EXCEPTION_ROWS = 0.01
# A column of texts with at least this many words on average, and this share of distinct texts, is
# prose.
PROSE_WORDS = 3.0
PROSE_SHARE = 0.2
# A column with more distinct texts is named if there is no other finding.
MANY_TEXTS = 30
# Formats of dates and times that are recognised. The first format that fits is suggested.
_DATES = (
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%Y.%m.%d",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d.%m.%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%d/%m/%y",
    "%m/%d/%y",
    "%d.%m.%y",
    "%d-%m-%y",
    "%m-%d-%y",
    "%y/%m/%d",
    "%d %b %Y",
    "%d %B %Y",
    "%d-%b-%Y",
    "%d-%b-%y",
    "%b %d, %Y",
    "%B %d, %Y",
    "%Y-%m",
    "%m/%Y",
    "%b-%Y",
    "%b %Y",
    "%b-%y",
)
_TIMES = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")
_CLOCKS = ("", *(gap + time + zone for gap in " T" for time in _TIMES for zone in ("", "%z")))
_FORMATS = (*(day + clock for clock in _CLOCKS for day in _DATES), *(TIME + t for t in _TIMES))


def _shape(text: str) -> str:
    """Return the signs of a text, with `x` for words and numbers, without a time zone at its end.

    An example is `x-x-x x:x` for `2026-01-31 12:00`.
    """
    return re.sub(r"[^\W_]+", "x", re.sub(r"(Z|[+-]\d\d:?\d\d)$", "", text))


# Texts of digits alone are codes, such as ZIP codes. A leading zero marks a code, too, also after
# letters.
_DIGITS = r"^\d+$"
_CODE = r"^[A-Z]* ?0\d+$"
# All parts of an amount but the sign of its currency
_AMOUNT = r"[eE][+-]?\d+|(k|K|M|mn|B|bn)?\+?\s*$|[\d.,' ()<>≤≥~≈=+−-]"
# A label with a hyphen, such as `CAD-1001`, although `CAD` is also a currency
_LABELLED = r"^[A-Z]+[-_]\d+$"
# A label with or without a hyphen, such as `CAD1001`
_NUMBERED = r"^[A-Z]+[-_]?\d+$"
# A number without separators of thousands and without a unit
_PLAIN = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
# Amounts and measures of whatever kind, such as `8.35 kmpl`, `Fr. 12.-` and `50:37`. They differ,
# but identify nothing.
_MEASURE = (
    r"^\D{0,4}\d[\d.,' "
    r"]*\s?[\pL°µ%\"'′″][^\d]{0,12}\d?$|^\D{0,3}\p{Sc}|^\d+([.,]\d+|:\d\d(:\d\d)?(\.\d+)?)$"
)
# A number with a unit behind it
_WITH_UNIT = r"^\D{0,3}\d[\d., ]*?\s*(?P<unit>[\pL°µ\"'′″]\D*\d?)$"
# Texts that often mean a missing value: signs, and words.
SUSPECT = (
    r"(?i)^([-–—?.*#_/ ]+|unknown|missing|not available|undefined|n\.?a\.?|n/a|none|nil|nan|null)$"
)


def text_findings(values: pa.ChunkedArray, name: str) -> Iterator[Finding]:
    """Yield the finding for a column of texts.

    A few texts that differ from the others do not matter. At most one finding.
    """
    present = null_markers(values, WORDS).drop_null()
    counted = pc.value_counts(pc.utf8_trim_whitespace(present))
    texts = counted.field("values")
    if len(texts) < 3:
        return
    # True if nearly all rows have different texts
    differ = len(present) >= MIN_ROWS and len(texts) >= DISTINCT_SHARE * len(present)
    # The hyphen of a label is no minus. Labels without a hyphen look like amounts, but amounts are
    # seldom all different integers.
    labels = pc.match_substring_regex(texts, _NUMBERED if differ else _LABELLED)
    if pc.mean(labels).as_py() < DISTINCT_SHARE:
        finding = _parsed_finding(name, texts, counted.field("counts").to_numpy(), differ)
        if finding is not None:
            yield finding
            return
    has_many = len(texts) > MANY_TEXTS
    words_per_text = pc.mean(pc.count_substring_regex(texts[:1_000], r"\pL\pL+")).as_py()
    measure_share = pc.mean(pc.match_substring_regex(texts, _MEASURE)).as_py()
    is_prose = words_per_text >= PROSE_WORDS and len(texts) >= PROSE_SHARE * len(present)
    if has_many and is_prose:
        kind = "prose"
    elif differ and measure_share < DISTINCT_SHARE:
        kind = "identifier"
    elif has_many:
        kind = "many"
    else:
        return
    yield Finding(kind, name, short_text(texts[0].as_py()), count=len(texts))


def _parsed_finding(name: str, texts: pa.Array, counts: np.ndarray, differ: bool) -> Finding | None:
    """Return a finding if texts are numbers, durations or dates, beside a few exceptions.

    None for codes such as ZIP codes.

    Args:
        name: The column.
        texts: The distinct texts.
        counts: Number of rows with each text.
        differ: True if nearly all rows have different texts.
    """
    suspect = pc.match_substring_regex(texts, SUSPECT).to_numpy(zero_copy_only=False)
    most_exceptions = (1 - DISTINCT_SHARE) * len(texts)
    fits = []
    for rule in _rules(texts):
        misfit = parse_texts(texts, rule).is_null().to_numpy(zero_copy_only=False)
        exceptions = counts[misfit & ~suspect]
        rare = len(exceptions) == 1 or exceptions.sum() <= max(1, EXCEPTION_ROWS * counts.sum())
        if rare and len(exceptions) <= most_exceptions and (~misfit).sum() >= 2:
            fits.append((int(counts[misfit].sum()), rule, misfit))
    if not fits:
        return None
    misfit_rows, rule, misfit = min(fits, key=lambda fit: fit[0])
    fitting = texts.filter(pa.array(~misfit))
    misfits = texts.filter(pa.array(misfit))
    plain = pc.match_substring_regex(fitting, _PLAIN)
    if rule == NUMBER and (
        pc.any(pc.match_substring_regex(fitting, _CODE)).as_py()
        or (not len(misfits) and _are_codes(fitting, differ))
        or _has_two_scales(fitting, counts[~misfit])
    ):
        return None
    # The example is a misfit, or else a number that is written in an unusual way.
    examples = misfits if len(misfits) else fitting.filter(pc.invert(plain))
    example = (examples if len(examples) else fitting)[0].as_py()
    is_marker = len(misfits) == 1 and (misfit_rows > 1 or suspect[misfit].any())
    if rule == NUMBER and is_marker and pc.all(plain).as_py():
        return Finding("marker", name, example, other_rule=NUMBER, count=misfit_rows)
    kind = "number_text" if "%" not in rule else "date_text"
    swapped = re.sub("%d(.)%m", r"%m\1%d", rule)  # the month before the day
    if swapped == rule or parse_texts(fitting, swapped).null_count:
        swapped = ""
    return Finding(kind, name, example, rule.removeprefix(TIME), swapped, len(misfits))


def _are_codes(texts: pa.Array, differ: bool) -> bool:
    """Return whether texts are digits alone that identify something.

    Such texts all differ, or all have the same length.
    """
    lengths = pc.min_max(pc.utf8_length(texts)).as_py()
    digits = pc.all(pc.match_substring_regex(texts, _DIGITS)).as_py()
    return digits and (differ or lengths["min"] == lengths["max"])


def _has_two_scales(texts: pa.Array, counts: np.ndarray) -> bool:
    """Return whether amounts have different signs, so that no rule makes them comparable.

    Examples are `$` and `€`, and `%` beside no sign. Rare signs do not count.
    """
    signs = pc.replace_substring_regex(texts, _AMOUNT, "")
    rows_by_sign = pd.Series(counts).groupby(signs.to_pylist()).sum()
    frequent = {*rows_by_sign.index[rows_by_sign > EXCEPTION_ROWS * counts.sum()]}
    return len(frequent - {""}) > 1 or frequent == {"", "%"}


def _rules(texts: pa.Array) -> Iterator[str]:
    """Yield the rules of `data.parse` that may fit texts."""
    yield from (NUMBER, DECIMAL_COMMA)
    units = pc.unique(pc.extract_regex(texts, _WITH_UNIT).flatten()[0].drop_null())
    if len(units) == 1:
        yield f"{UNIT}{units[0].as_py()}"
    yield DURATION
    # Only formats of dates that fit most of the first texts are worth a look at all texts.
    first_texts = texts[:50]
    shapes = {_shape(text) for text in first_texts.to_pylist()}
    example = datetime(2001, 2, 3, 4, 5, 6)
    for rule in _FORMATS:
        if _shape(example.strftime(rule.removeprefix(TIME))) not in shapes:
            continue
        if parse_texts(first_texts, rule).null_count <= len(first_texts) // 10:
            yield rule
