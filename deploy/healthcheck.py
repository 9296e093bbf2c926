"""Ask this container's own server for /healthz/live; exit 1 when it does not answer with 200."""

import os
import sys
from http.client import HTTPConnection

host = os.environ.get("ALLOWED_HOSTS", "localhost").split(",")[0].lstrip(".").replace("*", "localhost")
connection = HTTPConnection("127.0.0.1", int(os.environ.get("BIND", ":8000").rpartition(":")[2]), timeout=4)
try:
    connection.request("GET", "/healthz/live", headers={"Host": host})
    sys.exit(connection.getresponse().status != 200)
except OSError:
    sys.exit(1)
