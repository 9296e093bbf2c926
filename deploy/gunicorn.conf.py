"""Gunicorn for the reference project; gunicorn's own names. WEB_CONCURRENCY sets the number of worker processes."""

import os

bind = os.environ.get("BIND", "0.0.0.0:8000")
workers = int(os.environ.get("WEB_CONCURRENCY", "2"))
threads = 4
# Seconds without a sign of life after which a worker process is replaced; threads answer long requests meanwhile.
timeout = 30
graceful_timeout = 30
keepalive = 5
# A worker process is replaced now and then, so that a leak stays small; not all at the same time.
max_requests = 10_000
max_requests_jitter = 1_000
# Heartbeats are files: in memory, so that a slow disk is not taken for a dead worker.
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108
accesslog = "-"
# Which proxies may say that the client came over HTTPS is SECURE_PROXY_SSL_HEADER's business, not the server's.
forwarded_allow_ips = ""
