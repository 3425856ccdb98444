"""Run, resume, watch and export one sweep. The process that runs a sweep is called its driver."""
