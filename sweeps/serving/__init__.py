"""Serve a bundle over HTTP.

request_checks     check the body of a request; pure
limits             limits on requests and connections
access             check the token and the Host header
batching           combine requests into batches for the model
prediction_app     the ASGI application
prediction_server  `sweeps serve`: the application under uvicorn
"""
