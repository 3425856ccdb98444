"""Made-up input: nothing of it may end in a traceback, a hang, or a file outside the folder."""
