"""gcs.py BUCKET simulates Google Cloud Storage on a free port, with moto for the part of its XML interface that equals S3's.

It adds the differences: the instance's metadata server, which issues tokens, requests with tokens, and the condition that
an object must not exist yet.
"""

import json
import sys

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple
from werkzeug.test import Client

TOKEN = "a-token-of-the-instance"
S3 = "AWS key:signature"

moto = DomainDispatcherApplication(create_backend_app)


def gcs(environ, start_response):
    if environ["PATH_INFO"].startswith("/computeMetadata/"):
        token = {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"}
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(token).encode()]
    if environ.get("HTTP_AUTHORIZATION") != f"Bearer {TOKEN}":
        start_response("401 Unauthorized", [])
        return [b"this is not the token of the instance"]
    environ["HTTP_AUTHORIZATION"] = S3
    if environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None) == "0":
        environ["HTTP_IF_NONE_MATCH"] = "*"
    return moto(environ, start_response)


made = Client(moto).put(f"/{sys.argv[1]}", headers={"Authorization": S3})
assert made.status_code == 200, made.data
run_simple("127.0.0.1", 0, gcs, threaded=True, request_handler=MotoRequestHandler)
