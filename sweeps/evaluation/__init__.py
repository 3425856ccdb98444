"""How good is an exported model on new rows? Intervals for the values of a search."""
