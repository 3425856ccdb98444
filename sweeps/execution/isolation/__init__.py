"""Keep a trial in a warm process from changing the trials after it."""
