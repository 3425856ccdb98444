"""How configurations are sampled, a file an algorithm; `history` is what of a study they learn from."""
