"""Compares a live server, and the transcripts of the clients, with openapi.json.

check.py PGFRESH SEED EXAMPLES: `pgfresh serve` answers EXAMPLES requests for each operation, which
schemathesis draws from the document.
"""

import json
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from jsonschema_rs import Draft202012Validator

HERE = Path(__file__).resolve().parent
TRANSCRIPTS = HERE.parents[2] / "clients" / "transcripts"
DOCUMENT = json.loads((HERE.parent / "openapi.json").read_text())
# These responses have no end, and the page is for people.
ENDLESS = ["/v1/hold", "/v1/events", "/"]
# Only a hang takes longer: a hundred examples for each operation take five minutes.
SECONDS = 1800
# A test waits for up to a minute for another client to fill its template, and then gets an error.
REQUEST_SECONDS = "90"
ERROR = DOCUMENT["components"]["responses"]["Error500"]["content"]


def operation(request):
    """Returns the operation of a request."""
    path = request["path"].partition("?")[0]
    for template, operations in DOCUMENT["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
            return operations.get(request["method"].lower())
    return None


def parameter_errors(request, described):
    query = request["path"].partition("?")[2]
    names = {parameter["name"] for parameter in described.get("parameters", [])}
    sent = {pair.partition("=")[0] for pair in query.split("&") if pair}
    return [f"query {name!r} is not in the document" for name in sorted(sent - names)]


def value_errors(what, value, content):
    """Returns the errors of a body; `content` describes it, or is None if there must be none."""
    if value is None or content is None:
        return [] if value is None and content is None else [f"{what}: {value!r} for {content}"]
    schema = {"components": DOCUMENT["components"], **content["application/json"]["schema"]}
    found = Draft202012Validator(schema).iter_errors(value)
    return [f"{what}: {error.message}" for error in found]


def step_errors(step):
    described = operation(step["request"])
    if described is None:
        return ["the document has no such operation"]
    errors = parameter_errors(step["request"], described)
    body = step["request"].get("body")
    if body is not None:
        errors += value_errors("request", body, described.get("requestBody", {}).get("content"))
    answer = step.get("answer")
    # Without an answer, the server closes the connection. Without a body, an error has no form: a proxy may send it.
    if answer is None or (answer["status"] >= 400 and "body" not in answer):
        return errors
    response = described["responses"].get(str(answer["status"]))
    if response is None:
        return [*errors, f"status {answer['status']} is not in the document"]
    if "$ref" in response:
        response = DOCUMENT["components"]["responses"][response["$ref"].rpartition("/")[2]]
    return errors + value_errors("answer", answer.get("body"), response.get("content"))


def check_transcripts():
    """Exits if a recorded request or response is not what the document describes."""
    errors, steps = [], 0
    for path in sorted(TRANSCRIPTS.glob("*.json")):
        transcript = json.loads(path.read_text())
        if transcript.get("foreign"):
            continue
        line = transcript.get("start", {}).get("line")
        # An error in another form is the subject of a transcript.
        if isinstance(line, dict) and isinstance(line.get("error"), dict):
            found = value_errors("line", line, ERROR)
            errors += [f"{path.name}: {error}" for error in found]
        for number, step in enumerate(transcript["steps"], 1):
            if "request" in step:
                steps += 1
                errors += [f"{path.name}, step {number}: {error}" for error in step_errors(step)]
    planted = {"request": {"method": "POST", "path": "/v1/databases", "body": {"nmae": "a"}}, "answer": None}
    assert step_errors(planted), "the check finds no fault"
    if errors or not steps:
        sys.exit("\n".join(errors) or "there are no transcripts")
    print(f"The document describes {steps} steps of the transcripts.")


def check_server(pgfresh, seed, examples):
    with tempfile.TemporaryDirectory(prefix="pgfresh-http.") as folder:
        Path(folder, "schema.sql").write_text("CREATE TABLE items (id int PRIMARY KEY, name text)")
        Path(folder, "pgfresh.toml").write_text('[template]\nsql = "schema.sql"\n')
        command = [pgfresh, "serve", "--json"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe) as server:
            line = json.loads(server.stdout.readline())
            if "error" in line:
                sys.exit(f"pgfresh did not start: {line['error']}")
            excluded = [word for path in ENDLESS for word in ("--exclude-path", path)]
            code = subprocess.run(
                [
                    *(f"{sysconfig.get_path('scripts')}/st", "--config-file", HERE / "schemathesis.toml"),
                    *("run", f"{line['http_url']}v1/openapi.json"),
                    *("--header", f"Authorization: Bearer {line['password']}"),
                    *("--seed", seed, "--max-examples", examples, "--request-timeout", REQUEST_SECONDS),
                    *excluded,
                ],
                cwd=folder,
                timeout=SECONDS,
                check=False,
            ).returncode
        sys.exit(code or server.returncode)


check_transcripts()
check_server(*sys.argv[1:])
