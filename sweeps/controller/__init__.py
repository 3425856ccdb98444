"""Run, resume, watch and export one sweep."""
