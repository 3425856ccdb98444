"""The sections of a space file: a dataclass and a parser for each section."""
