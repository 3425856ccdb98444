"""A bundle over HTTP: what a request may hold (`checks`, pure), requests answered together (`batching`), the ASGI application (`app`),
and what runs it (`server`)."""
