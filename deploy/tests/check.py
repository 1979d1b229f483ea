"""Renders the chart with generated values, and validates the result and the sidecar against the schemas of Kubernetes and the Prometheus
operator, and against the rules in docs/kubernetes.md. Then it makes mistakes, and expects the validation to find each mistake.

check.py SEED COUNT MONITOR HELM…: with each of these helms; the seed repeats a run of COUNT generated combinations of values. MONITOR is
service-monitor.mjs beside the packages that it uses.
"""

import base64
import copy
import functools
import itertools
import json
import math
import random
import re
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/pgfresh"
SIDECAR = ROOT / "deploy/sidecar.yaml"
REFERENCE = "".join((ROOT / "docs" / page).read_text() for page in ["reference-cli.md", "reference-config.md", "reference-run.md"])
OLDEST = re.search(r'^kubeVersion: ">=([0-9.]+)', (CHART / "Chart.yaml").read_text(), re.M)[1]
NEWEST = kubernetes_validate.latest_version()
# Cache the schemas, because kubernetes_validate would read them again for each document.
kubernetes_validate.utils.schema_contents = functools.lru_cache(None)(kubernetes_validate.utils.schema_contents)

REQUIRED = {"image": {"repository": "registry.example/pgfresh"}}
# Settings to try for each value, besides its default.
CHOICES = {
    ("nameOverride",): ["tests"],
    ("fullnameOverride",): ["databases", "a" * 52],
    ("replicas",): [0, 1, 3],
    ("image", "tag"): ["1.2.3", "17"],
    ("image", "pullPolicy"): ["Always"],
    ("imagePullSecrets",): [[{"name": "registry"}]],
    ("auth", "password"): ["hush", "a-b.c_d~e"],
    ("auth", "existingSecret"): ["of-ours"],
    ("auth", "secretKey"): ["token"],
    ("tls", "secretName"): ["of-cert-manager"],
    ("project", "files"): [{"pgfresh.toml": '[template]\nsql = "schema.sql"\n', "schema.sql": "CREATE TABLE t ();\n"}, {"pgfresh.toml": ""}],
    ("project", "directory"): ["/srv/project"],
    ("memory", "size"): ["512Mi", "2.5Gi"],
    ("cache", "size"): ["20Gi"],
    ("cache", "persistent"): [True],
    ("cache", "storageClassName"): ["fast"],
    ("resources",): [{"limits": {"memory": "8Gi", "cpu": "2"}}],
    ("extraEnv",): [[{"name": "PGFRESH_LOG", "value": "warn"}], [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "of-ours", "key": "key"}}}]],
    ("service", "type"): ["LoadBalancer", "NodePort"],
    ("service", "port"): [443],
    ("service", "annotations"): [{"example.com/internal": "true"}],
    ("podDisruptionBudget", "enabled"): [False],
    ("podDisruptionBudget", "maxUnavailable"): ["50%", 2],
    ("serviceMonitor", "enabled"): [True],
    ("serviceMonitor", "interval"): ["1m"],
    ("serviceMonitor", "labels"): [{"release": "prometheus"}],
    ("startupProbe", "failureThreshold"): [3000],
    ("podSecurityContext",): [
        {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
        {"runAsUser": 1000660000, "runAsGroup": 0},
    ],
    ("podAnnotations",): [{"example.com/owner": "tests"}],
    ("podLabels",): [{"team": "tests"}],
    ("nodeSelector",): [{"kubernetes.io/arch": "amd64"}],
    ("tolerations",): [[{"key": "ci", "operator": "Exists"}]],
    ("affinity",): [{"nodeAffinity": {}}],
    ("topologySpreadConstraints",): [
        [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}]
    ],
    ("priorityClassName",): ["low"],
}
# Values that the chart must refuse, with a word of the error.
REFUSED = [
    ({"image": {"repository": ""}}, "image.repository is empty"),
    ({"image": {"repo": "x"}}, "repo"),
    ({"memory": {"size": "2GB"}}, "size"),
    ({"memory": {"size": None}}, "size"),
    ({"replicas": -1}, "replicas"),
    ({"replicas": "two"}, "replicas"),
    ({"auth": {"password": "a@b"}}, "password"),
    ({"project": {"files": {"sql/schema.sql": ""}}}, "sql/schema.sql"),
    ({"project": {"directory": "relative"}}, "directory"),
    ({"service": {"port": 0}}, "port"),
    ({"service": {"type": "ExternalName"}}, "type"),
    ({"startupProbe": {"httpGet": {}}}, "httpGet"),
    ({"podDisruptionBudget": {"maxUnavailable": 0}}, "maxUnavailable"),
    ({"serviceMonitor": {"enabled": True, "verify": True}}, "needs tls.secretName"),
    ({"tsl": {}}, "tsl"),
]


def merged(values, changes):
    result = copy.deepcopy(values)
    for key, value in changes.items():
        result[key] = merged(result[key], value) if isinstance(value, dict) and isinstance(result.get(key), dict) else value
    return result


def put(values, path, choice):
    for key in path[:-1]:
        values = values.setdefault(key, {})
    values[path[-1]] = choice


def combinations(generator, count):
    """Yields the required values alone, with each single choice, and with `count` random combinations."""
    yield REQUIRED
    for path, choices in CHOICES.items():
        for choice in choices:
            values = copy.deepcopy(REQUIRED)
            put(values, path, copy.deepcopy(choice))
            yield values
    for _ in range(count):
        values = copy.deepcopy(REQUIRED)
        share = generator.random()
        for path, choices in CHOICES.items():
            if generator.random() < share:
                put(values, path, copy.deepcopy(generator.choice(choices)))
        yield values


def template(helm, values, *options):
    arguments = [helm, "template", "release", str(CHART), "--namespace", "testing", "--values", "-", *options]
    return subprocess.run(arguments, input=json.dumps(values), capture_output=True, text=True)


def rendered(helms, values):
    """Returns the rendered chart. Checks that all helms render the same."""
    results = []
    for helm in helms:
        result = template(helm, values, "--kube-version", OLDEST)
        if result.returncode:
            sys.exit(f"{helm} does not render {json.dumps(values)}: {result.stderr}")
        documents = [document for document in yaml.safe_load_all(result.stdout) if document]
        for document in documents:
            if document["kind"] == "Secret" and not values.get("auth", {}).get("password"):
                (key, password), = document["data"].items()
                if not re.fullmatch("[A-Za-z0-9]{32}", base64.b64decode(password).decode()):
                    sys.exit(f"the password that {helm} makes is none: {password}")
                document["data"][key] = "cmFuZG9t"
        results.append(sorted(documents, key=lambda document: (document["kind"], document["metadata"]["name"])))
    for helm, result in zip(helms, results):
        if result != results[0]:
            sys.exit(f"{helms[0]} and {helm} differ for {json.dumps(values)}")
    return results[0]


@functools.lru_cache(None)
def by_schema(text, version):
    """Returns the errors that this version of Kubernetes would report for a document."""
    document = json.loads(text)
    if document["apiVersion"].startswith("monitoring.coreos.com/"):
        return None
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"Kubernetes {version}: {document['kind']}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError as error:
        return error.message
    return None


def pods(documents):
    """Yields the pod templates, and for each the names of the volumes that its owner adds."""
    for document in documents:
        if document["kind"] in ("StatefulSet", "Job"):
            spec = document["spec"]
            yield document, spec["template"], [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])]


def quantity(text):
    """Converts a size to bytes. Returns NaN for an invalid size, because the schemas accept any text."""
    units = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
    parts = re.fullmatch(r"([0-9.]+)(|k|M|G|Ki|Mi|Gi)", text)
    return float(parts[1]) * units[parts[2]] if parts else math.nan


def of_containers(pod, claims, documents):
    """Yields the errors in a pod's containers."""
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    made = {(document["kind"], document["metadata"]["name"]) for document in documents}
    for name, volume in volumes.items():
        if "configMap" in volume and ("ConfigMap", volume["configMap"]["name"]) not in made:
            yield f"volume {name}: there is no such ConfigMap"
    for container in pod.get("initContainers", []) + pod["containers"]:
        name, security = container["name"], container.get("securityContext", {})
        if security != {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}:
            yield f"{name}: has more rights than it needs"
        limit = container.get("resources", {}).get("limits", {}).get("memory")
        if not limit:
            yield f"{name}: has no limit of memory"
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        if len(mounts) != len(container["volumeMounts"]):
            yield f"{name}: two volumes at one path"
        for path, volume in mounts.items():
            if volume not in volumes and volume not in claims:
                yield f"{name}: there is no volume {volume}"
        env = {variable["name"]: variable.get("value") for variable in container.get("env", [])}
        known = []
        for variable in env:
            for used in re.findall(r"\$\((\w+)\)", env[variable] or ""):
                if used not in known:
                    yield f"{name}: {variable} uses {used}, which is not set before it"
            known.append(variable)
            if variable.startswith("PGFRESH_") and variable not in REFERENCE:
                yield f"{name}: {variable} is no variable of pgfresh"
        if "PGFRESH_PLACE" not in env:
            continue
        memory = volumes.get(mounts.get(env["PGFRESH_PLACE"]), {}).get("emptyDir", {})
        if memory.get("medium") != "Memory" or "sizeLimit" not in memory:
            yield f"{name}: the databases are not in memory, or as much as they like"
        elif limit and not quantity(memory["sizeLimit"]) < quantity(limit):
            yield f"{name}: the volume in memory is not smaller than the limit"
        if str(Path(env["PGFRESH_CACHE"]).parent) not in mounts or env["HOME"] not in mounts:
            yield f"{name}: has nowhere to write"
        words = container["args"]
        for word in words[1:]:
            flag, _, value = word.partition("=")
            if f"`{flag} " not in REFERENCE and f"`{flag}`" not in REFERENCE:
                yield f"{name}: {flag} is no flag of pgfresh"
            if value.startswith("/") and str(Path(value).parent) not in mounts:
                yield f"{name}: {value} is not mounted"
            for used in re.findall(r"\$\((\w+)\)", value):
                if used not in env:
                    yield f"{name}: {flag} uses {used}, which is not set"
        probes = [container.get(probe, {}).get("exec", {}).get("command") for probe in ("startupProbe", "readinessProbe", "livenessProbe")]
        if probes[0] != ["pgfresh", "status", "--json"] or any(probe not in (None, probes[0]) for probe in probes):
            yield f"{name}: is not asked for its status"


def by_promises(documents):
    """Yields violations of the rules in docs/kubernetes.md, which the schemas don't check."""
    names = [(document["kind"], document["metadata"]["name"]) for document in documents]
    if len(set(names)) != len(names):
        yield f"two documents have one name: {names}"
    for kind, name in names:
        if len(name) > 63:
            yield f"the name of {kind} {name} is too long"
    services = {document["metadata"]["name"]: document for document in documents if document["kind"] == "Service"}
    for owner, template, claims in pods(documents):
        pod = template["spec"]
        security = pod.get("securityContext", {})
        if not security.get("runAsNonRoot") or security.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield "the pod may be root, or call what it likes"
        if pod.get("automountServiceAccountToken") is not False or pod.get("enableServiceLinks") is not False:
            yield "the pod is told of the cluster"
        yield from of_containers(pod, claims, documents)
        if owner["kind"] == "Job":
            sidecar = pod["initContainers"][0]
            if sidecar.get("restartPolicy") != "Always" or "startupProbe" not in sidecar:
                yield "pgfresh is not beside the tests, or they do not wait for it"
            continue
        labels = template["metadata"]["labels"]
        ports = [port["name"] for container in pod["containers"] for port in container["ports"]]
        headless = services.get(owner["spec"]["serviceName"], {"spec": {}})
        if headless["spec"].get("clusterIP") != "None":
            yield "pods have no names"
        advertised = next((word for word in pod["containers"][0]["args"] if word.startswith("--advertise=")), "")
        if advertised != f"--advertise=$(POD_NAME).{owner['spec']['serviceName']}.testing.svc:5432":
            yield "a pod does not advertise its own name"
        selectors = [owner["spec"]["selector"]["matchLabels"]]
        for document in documents:
            spec = document["spec"] if "spec" in document else {}
            if document["kind"] == "Service":
                selectors.append(spec["selector"])
                if any(port["targetPort"] not in ports for port in spec["ports"]):
                    yield "a service leads to no port"
            elif document["kind"] == "PodDisruptionBudget":
                selectors.append(spec["selector"]["matchLabels"])
            elif document["kind"] == "ServiceMonitor":
                wanted = spec["selector"]["matchLabels"].items()
                found = [name for name, service in services.items() if wanted <= service["metadata"]["labels"].items()]
                if len(found) != 1 or services[found[0]]["spec"].get("clusterIP") != "None":
                    yield "Prometheus does not find each pod once"
        if any(not selector.items() <= labels.items() for selector in selectors):
            yield "something does not select the pods"


def mistakes(documents):
    """Returns the schema errors of the documents. If there are none, returns the violations of the rules."""
    texts = [json.dumps(document) for document in documents]
    found = [by_schema(text, version) for text in texts for version in (OLDEST, NEWEST)]
    return [mistake for mistake in found if mistake] or list(by_promises(documents))


def of_monitors(monitors):
    """Returns the Prometheus operator's schema error for each monitor, or None."""
    result = subprocess.run(["node", sys.argv[3]], input=json.dumps(monitors), capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


def changed(documents, kind, path, change):
    """Returns a copy of the documents where a member of the first document of this kind is replaced or removed."""
    copied = copy.deepcopy(documents)
    part = next(document for document in copied if document["kind"] == kind)
    for key in path[:-1]:
        part = part[key]
    if change is None:
        del part[path[-1]]
    else:
        part[path[-1]] = change
    return copied


POD = ("spec", "template", "spec")
CONTAINER = (*POD, "containers", 0)
# Mistakes in the chart that somebody could make.
PLANTED = [
    ("StatefulSet", ("spec", "replica"), 2),
    ("StatefulSet", ("spec", "replicas"), "2"),
    ("StatefulSet", ("spec", "serviceName"), "elsewhere"),
    ("StatefulSet", ("spec", "selector"), None),
    ("StatefulSet", ("apiVersion",), "apps/v1beta2"),
    ("StatefulSet", (*POD, "securityContext", "runAsNonRoot"), False),
    ("StatefulSet", (*POD, "securityContext", "seccompProfile"), {"type": "Unconfined"}),
    ("StatefulSet", (*POD, "enableServiceLinks"), None),
    ("StatefulSet", (*POD, "volumes", 0, "emptyDir"), {}),
    ("StatefulSet", (*POD, "volumes", 0, "emptyDir", "sizeLimit"), "4Gi"),
    ("StatefulSet", (*POD, "volumes", 0, "name"), "rom"),
    ("StatefulSet", (*CONTAINER, "securityContext", "readOnlyRootFilesystem"), False),
    ("StatefulSet", (*CONTAINER, "securityContext", "privileged"), True),
    ("StatefulSet", (*CONTAINER, "securityContext", "capabilities", "drop"), []),
    ("StatefulSet", (*CONTAINER, "resources", "limits"), {"memory": "2 Gi"}),
    ("StatefulSet", (*CONTAINER, "startupProbe", "exec"), {"command": "pgfresh status"}),
    ("StatefulSet", (*CONTAINER, "livenessProbe"), {"exec": {"command": ["true"]}}),
    ("StatefulSet", (*CONTAINER, "args", 3), "--advertise=$(POD_NAME):5432"),
    ("StatefulSet", (*CONTAINER, "args", 1), "--listens=0.0.0.0"),
    ("StatefulSet", (*CONTAINER, "env", 0, "name"), "POD"),
    ("StatefulSet", (*CONTAINER, "env", 3, "name"), "PGFRESH_PLACES"),
    ("StatefulSet", (*CONTAINER, "ports", 0, "name"), "sql"),
    ("Service", ("spec", "ports", 0, "targetPort"), "http"),
    ("Service", ("spec", "selector"), {"app": "pgfresh"}),
    ("PodDisruptionBudget", ("apiVersion",), "policy/v1beta1"),
    ("PodDisruptionBudget", ("spec", "selector", "matchLabels"), {"app": "pgfresh"}),
    ("ConfigMap", ("metadata", "name"), "another"),
    ("Secret", ("data",), {"password": 5}),
]
# Mistakes in the sidecar.
PLANTED_BESIDE = [
    ("Job", (*POD, "initContainers", 0, "restartPolicy"), None),
    ("Job", (*POD, "initContainers", 0, "restartPolicy"), True),
    ("Job", (*POD, "initContainers", 0, "startupProbe"), None),
    ("Job", (*POD, "initContainers", 0, "env", 3, "value"), "/var/cache/pgfresh"),
    ("Job", (*POD, "restartPolicies"), "Never"),
    ("Job", (*CONTAINER, "securityContext"), None),
    ("ConfigMap", ("metadata", "name"), "another"),
]


def main():
    seed, count, helms = sys.argv[1], int(sys.argv[2]), sys.argv[4:]
    versions = f"Kubernetes {OLDEST} and {NEWEST}"
    monitors, number = [], 0
    for values in combinations(random.Random(seed), count):
        # This combination needs both, and rendering with the first helm is sufficient.
        if values.get("memory", {}).get("size") == "2.5Gi":
            values["resources"] = {"limits": {"memory": "4Gi"}}
        documents = rendered(helms, values)
        if found := mistakes(documents):
            sys.exit(f"with seed {seed}, values {json.dumps(values)}:\n" + "\n".join(found))
        monitors += [document for document in documents if document["kind"] == "ServiceMonitor"]
        number += 1
    said = of_monitors(monitors)
    assert monitors and not any(said), said
    print(f"{number} combinations of values, {len(helms)} versions of helm, {versions}, {len(monitors)} ServiceMonitors; seed {seed}")

    sidecar = list(yaml.safe_load_all(SIDECAR.read_text()))
    if found := mistakes(sidecar):
        sys.exit(f"{SIDECAR}:\n" + "\n".join(found))
    # Before 1.28, init containers didn't have restartPolicy. This shows that the schemas differ and are strict.
    assert any(by_schema(json.dumps(document), "1.27") for document in sidecar)

    project = {"project": {"files": {"pgfresh.toml": ""}}}
    chart = rendered(helms, merged(REQUIRED, project))
    planted = [(chart, plant) for plant in PLANTED] + [(sidecar, plant) for plant in PLANTED_BESIDE]
    for documents, plant in planted:
        assert mistakes(changed(documents, *plant)), f"not found: {plant}"
    broken = [changed(monitors[:1], "ServiceMonitor", path, change)[0] for path, change in [
        (("spec", "selector"), None),
        (("spec", "endpoints"), {}),
        (("spec", "endpoints", 0, "port"), 5432),
        (("spec", "endpoints", 0, "scheme"), "tls"),
        (("spec", "endpoints", 0, "authorization", "credentials", "key"), None),
    ]]
    assert all(of_monitors(broken)), of_monitors(broken)
    for (changes, reason), helm in itertools.product(REFUSED, helms):
        result = template(helm, merged(REQUIRED, changes), "--kube-version", OLDEST)
        assert result.returncode and reason in result.stderr, f"{helm}, {changes}: {result.stderr}"
    for helm in helms:
        assert "kubeVersion" in template(helm, REQUIRED, "--kube-version", "1.28.0").stderr
    print(f"{len(planted) + len(broken)} planted mistakes and {len(REFUSED)} wrong values are found")


main()
