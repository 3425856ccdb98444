"""Types of the fields of trials and events, with the rules that pydantic checks in a record.

The classes that use these types are ordinary dataclasses: only reading a record checks them.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, InstanceOf, Strict

from sweeps.core.json_files import is_deep


def _shallow(value: dict[str, Any]) -> dict[str, Any]:
    if is_deep(value):
        raise ValueError("is nested too deeply")
    return value


def _folder_name(name: str) -> str:
    if "\0" in name or "/" in name or name in ("", ".", ".."):
        raise ValueError("must name a folder")
    return name


# pydantic's `str` rejects texts that are not valid Unicode, such as some file names.
Text = InstanceOf[str]
FolderName = Annotated[Text, AfterValidator(_folder_name)]
Configuration = Annotated[dict[Text, Any], AfterValidator(_shallow)]
Integer = Annotated[int, Strict()]
Count = Annotated[int, Field(strict=True, ge=0, lt=10**12)]
Workers = Annotated[int, Field(strict=True, gt=0, lt=10**9)]
Number = Annotated[float, Strict()]
Numbers = dict[Text, Number]
Seconds = Annotated[float, Field(strict=True, gt=-(10**12), lt=10**12)]
# Seconds since the epoch, before the year 9999
Time = Annotated[float, Field(strict=True, ge=0, lt=253_370_764_800)]
