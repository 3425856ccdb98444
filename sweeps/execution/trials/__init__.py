"""Run all attempts of a trial, retry it, and change its number of workers."""
