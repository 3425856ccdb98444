"""Serve a bundle over HTTP.

request_checks  check the body of a request; pure
limits          limits on requests and connections; pure
access          check the Host header and the token
batching        combine requests into batches for the model
app             the ASGI application
limited_server  uvicorn with limits
server          `sweeps serve`: one process
replicas        `sweeps serve --replicas`: several processes under Ray Serve
"""
