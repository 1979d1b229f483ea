"""container.py PORT NAME creates a container in Azurite, whose account and key are public."""

import base64
import hashlib
import hmac
import sys
import urllib.request
from email.utils import formatdate

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

port, name = sys.argv[1:]
date = formatdate(usegmt=True)
headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
canonical = "".join(f"{key}:{value}\n" for key, value in sorted(headers.items()))
text = "PUT" + "\n" * 12 + canonical + f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
url = f"http://127.0.0.1:{port}/{ACCOUNT}/{name}?restype=container"
request = urllib.request.Request(url, method="PUT", headers=headers)
request.add_header("Authorization", f"SharedKey {ACCOUNT}:{signature}")
request.add_header("Content-Length", "0")
with urllib.request.urlopen(request) as answer:
    assert answer.status == 201
