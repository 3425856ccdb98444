"""What a person sees: the live view while a sweep runs, and the text of everything else."""
