"""Names of the built-in steps of some kinds. Checks of a space file read them without pandas."""

# These steps make columns named `COLUMN_VALUE`
EXPANDING = ("OneHotEncoder", "HashingVectorizer")
# These steps make numbers or categories of texts
ENCODERS = (*EXPANDING, "OrdinalEncoder", "Categorizer")
