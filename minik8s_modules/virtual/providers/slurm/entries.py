"""A Pod as an entry of ``minik8s_slurm_jobs``, or the reason why it cannot be a job. Pure but for what it looks up.

A job has one program, on compute nodes that belong to others: no container, no address, no probes. What a Pod asks for
beyond that is refused by name. Values of variables and Secrets never stand in the entry; they travel apart.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.carried_fields import GRACE_S, Carrier, mounts_of, refusals, volumes_of
from minik8s_modules.api.pods.scripts import script_of, unfit
from minik8s_modules.api.pods.slurm import DEPENDENCY, GPU, SOURCES, TASKS, TASKS_PER_NODE
from minik8s_modules.api.quantities import to_bytes, to_milli
from minik8s_modules.module_utils.minik8s.slurm.depending import KINDS
from minik8s_modules.virtual.errors import InvalidInput
from minik8s_modules.virtual.provider import Resources
from minik8s_modules.virtual.providers.slurm.fetching import NOTHING, Fetching
from minik8s_modules.virtual.providers.slurm.images import VOLUMES, Bind, InImage, in_image
from minik8s_modules.virtual.providers.slurm.results import obstacle, wish_of

_CARRIER = Carrier(
    "a Slurm job",
    frozenset({"restartPolicy", "activeDeadlineSeconds", "terminationGracePeriodSeconds", "volumes"}),
    frozenset({
        "command", "args", "workingDir", "env", "envFrom", "resources", "imagePullPolicy", "volumeMounts",
        "terminationMessagePolicy",
    }),
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SOURCES = {
    "configMap": frozenset({"name", "items", "optional", "defaultMode"}),
    "secret": frozenset({"secretName", "items", "optional", "defaultMode"}),
    "emptyDir": frozenset[str](),
}
"""Sources of volumes, and their fields that are acted on."""
_OF_A_MOUNT = frozenset({"name", "mountPath", "readOnly", "subPath", "subPathExpr"})
_EXECUTABLE = 0o111
_DIGITS = 9
_RESOURCES = frozenset({"cpu", "memory", GPU})
_OF_OTHERS = frozenset({"values", "sources", "script", "after"})
"""Fields of an entry that other objects have a part in."""
_WORDS = ("image", "command", "args", "workingDir")


class JobRequest(NamedTuple):
    """The entry of a job, and the values that travel beside it."""

    entry: JsonObject
    values: JsonObject


def asked(
    pod: JsonObject,
    partition: str,
    resources: Resources,
    image_command: Sequence[str] = (),
    fetching: Fetching = NOTHING,
) -> JobRequest:
    """Return what the module is to submit for ``pod``, whose variables are resolved.

    ``image_command`` runs a program in an image (``images``), which ``fetching`` fetches.

    Raises:
        InvalidInput: the Pod cannot be a job; the message names the field and says what to do.
    """
    container = _container(pod)
    environment = _environment(container)  # looks at names, which become words of a shell
    inside = in_image(container, image_command, _binds(pod, container), fetching)
    sources, files = _volumes(pod, container, resources)
    numbers = _numbers(pod)
    needs = _resources(container, int(numbers.get("tasks", 1)))
    entry: JsonObject = {
        "name": f"{objects.namespace(pod)}/{objects.name(pod)}",
        "partition": partition,
        "script": _script(container, environment, inside),
        "sources": {**_written(pod), **sources},
        "requeue": objects.spec(pod).get("restartPolicy") == "OnFailure",
        **numbers,
        **needs,
    }
    outside = {inside.prefix + name: value for name, value in environment.items()}
    values = {name: one for name, one in (("environment", outside), ("files", files)) if one}
    if after := _after(pod, resources):
        entry["after"] = after
    _check_results(pod, resources)
    if values:
        entry["values"] = hashlib.sha256(orjson.dumps(values, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return JobRequest(entry, values)


def remarks(pod: JsonObject) -> Iterator[str]:
    """Yield what a job's Pod asks for that is not done as it says, and no reason to refuse it."""
    grace_s = objects.spec(pod).get("terminationGracePeriodSeconds", GRACE_S)
    if grace_s != GRACE_S:
        yield f"spec.terminationGracePeriodSeconds {grace_s}: how long a job has to end is Slurm's setting KillWait"
    for container in objects.containers(pod):
        for mount in mounts_of(container):
            if mount.get("readOnly"):
                yield f"volumeMounts {mount['name']}: readOnly: a job has copies of its own, which it may change"


def is_another(before: tuple[JsonObject, JsonObject], now: tuple[JsonObject, JsonObject]) -> bool:
    """Return whether a Pod declares another job than before; each comes with its entry.

    What it takes from Secrets, ConfigMaps, Services and other Pods may change; its job has what it began with.
    """
    (pod, entry), (new_pod, new_entry) = before, now
    differs = any(entry.get(name) != new_entry.get(name) for name in {*entry, *new_entry} - _OF_OTHERS)
    return differs or _words(pod) != _words(new_pod)


def _words(pod: JsonObject) -> list[object]:
    words = [one.get(name) or None for one in objects.containers(pod) for name in _WORDS]
    return [*words, objects.annotations(pod).get(SOURCES)]


def _container(pod: JsonObject) -> JsonObject:
    if len(objects.containers(pod)) != 1:
        raise InvalidInput("spec.containers: a Slurm job has one program; run what belongs together from its script")
    container = objects.containers(pod)[0]
    for why in refusals(pod, _CARRIER):
        raise InvalidInput(why)
    if objects.spec(pod).get("restartPolicy", "Always") == "Always":
        raise InvalidInput("spec.restartPolicy Always: a job ends; choose Never, or OnFailure to have it requeued")
    return container


def _script(container: JsonObject, environment: Mapping[str, str], inside: InImage) -> str:
    if not container.get("command"):
        raise InvalidInput("spec.containers[0].command: a job takes none from an image; set it")
    script = script_of(container, environment, *inside)
    if why := unfit(script):
        raise InvalidInput(f"spec.containers[0].command, args, workingDir: {why}")
    return script


def _environment(container: JsonObject) -> dict[str, str]:
    found = {}
    for variable in container.get("env") or []:
        if variable.get("valueFrom") is not None:
            raise InvalidInput(f"env {variable['name']}: its valueFrom is not known to this provider")
        if not _NAME.match(variable["name"]):
            raise InvalidInput(f"env {variable['name']}: a job's shell knows no variable of such a name")
        value = str(variable.get("value") or "")
        if why := unfit(value):
            raise InvalidInput(f"env {variable['name']}: {why}; correct what its value comes from")
        found[variable["name"]] = value
    return found


def _resources(container: JsonObject, tasks: int) -> JsonObject:
    declared = container.get("resources") or {}
    needs = {**(declared.get("limits") or {}), **(declared.get("requests") or {})}
    if unknown := sorted(needs.keys() - _RESOURCES):
        raise InvalidInput(f"resources {unknown[0]}: a Slurm job may ask for cpu, memory and {GPU}")
    found: JsonObject = {}
    if needs.get("cpu"):
        found["cpus_per_task"] = max(1, math.ceil(to_milli(needs["cpu"]) / 1000 / tasks))
    if needs.get("memory"):
        found["memory_mb"] = max(1, math.ceil(to_bytes(needs["memory"]) / (1 << 20)))
    if needs.get(GPU):
        found["gpus"] = to_bytes(needs[GPU])
    return found


def _numbers(pod: JsonObject) -> JsonObject:
    found: JsonObject = {}
    if deadline := objects.spec(pod).get("activeDeadlineSeconds"):
        found["minutes"] = math.ceil(int(deadline) / 60)
    for annotation, field in ((TASKS, "tasks"), (TASKS_PER_NODE, "tasks_per_node")):
        text = objects.annotations(pod).get(annotation)
        if text is not None:
            if not text.isdecimal() or len(text) > _DIGITS or int(text) < 1:
                raise InvalidInput(f"annotation {annotation} {text!r:.80} must be a number from 1 to {'9' * _DIGITS}")
            found[field] = int(text)
    return found


def _after(pod: JsonObject, resources: Resources) -> dict[str, str]:
    """Return how the jobs of other Pods, by uid, must be before this one starts.

    Raises:
        LookupError: a Pod does not exist on this node; it may come.
    """
    said = objects.annotations(pod).get(DEPENDENCY)
    if said is None:
        return {}
    namespace, found = objects.namespace(pod), {}
    there = {objects.name(one): objects.uid(one) for one in resources.pods() if objects.namespace(one) == namespace}
    for part in said.split(","):
        kind, *names = (word.strip() for word in part.split(":"))
        if kind not in KINDS or not names or not all(names):
            raise InvalidInput(
                f"annotation {DEPENDENCY} {part!r:.80}: write {', '.join(KINDS)} and names of Pods, as afterok:NAME"
            )
        for name in names:
            if name not in there:
                raise LookupError(f"annotation {DEPENDENCY}: there is no Pod {namespace}/{name} on this node")
            if there[name] == objects.uid(pod):
                raise InvalidInput(f"annotation {DEPENDENCY}: a Pod cannot wait for itself")
            found[there[name]] = kind
    return found


def _check_results(pod: JsonObject, resources: Resources) -> None:
    """Raise LookupError where the Pod's results could not be copied when it ends: its job would run in vain."""
    wish, namespace = wish_of(pod), objects.namespace(pod)
    if wish is not None and (why := obstacle(wish, namespace, resources.config_map(namespace, wish.config_map))):
        raise LookupError(why)


def _written(pod: JsonObject) -> dict[str, str]:
    """Return the files that the Pod brings along itself."""
    text = objects.annotations(pod).get(SOURCES)
    if text is None:
        return {}
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise InvalidInput(f"annotation {SOURCES} must be JSON of texts by relative path")
    return found


# --- volumes: files below the job's working folder -----------------------------------------------------------


def _volumes(pod: JsonObject, container: JsonObject, resources: Resources) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files that may be seen, as text, and those that may not, in base64; by path below the folder."""
    declared = {volume["name"]: volume for volume in volumes_of(pod)}
    for volume in declared.values():
        _check_volume(volume)
    sources: dict[str, str] = {}
    files: dict[str, str] = {}
    for mount, path in _mounts(container):
        where = f"volumeMounts {mount['name']}"
        volume = declared[mount["name"]]
        if (source := volume.get("configMap")) is not None:
            found = resources.config_map(objects.namespace(pod), source.get("name", ""))
            data = {**((found or {}).get("data") or {})}
            _refuse_binary(found, where)
            sources.update(_placed(path, _chosen(data, source, found is None, where)))
        elif (source := volume.get("secret")) is not None:
            found = resources.secret(objects.namespace(pod), source.get("secretName", ""))
            files.update(_placed(path, _chosen((found or {}).get("data") or {}, source, found is None, where)))
        else:
            files[f"{path}/.keep"] = base64.b64encode(b"").decode()
    return sources, files


def _check_volume(volume: JsonObject) -> None:
    """Raise InvalidInput where a volume, mounted or not, asks for what a job's files cannot be."""
    name = volume["name"]
    (kind, source), *others = (
        (field, value) for field, value in volume.items() if field != "name" and value is not None
    )
    if kind not in _SOURCES or others:
        raise InvalidInput(f"volumes {name}: a job can have only {', '.join(sorted(_SOURCES))} volumes")
    if unknown := sorted(field for field, value in source.items() if value and field not in _SOURCES[kind]):
        raise InvalidInput(
            f"volumes {name}: {kind}.{unknown[0]}: the files of a job lie on a file system of its site, which bounds"
            " and places them; leave it out"
        )
    modes = [source.get("defaultMode"), *(item.get("mode") for item in source.get("items") or [])]
    if any(mode is not None and mode & _EXECUTABLE for mode in modes):
        raise InvalidInput(
            f"volumes {name}: {kind}: files of a job have mode 0600, and cannot be executed: name their interpreter in"
            " command, such as `sh src/run.sh`, and leave defaultMode and mode out"
        )


def _binds(pod: JsonObject, container: JsonObject) -> list[Bind]:
    """Return the volumes that are to be at absolute paths of a container.

    A job that runs again gives its container folders that its first run could have made links to anything.
    """
    paths = ((path, str(mount["mountPath"]).rstrip("/")) for mount, path in _mounts(container))
    found = [Bind(path, target) for path, target in paths if target.startswith("/")]
    if found and objects.spec(pod).get("restartPolicy") == "OnFailure":
        raise InvalidInput(
            f"volumeMounts: mountPath {found[0].target!r:.80}: a job with restartPolicy OnFailure has nothing at an"
            " absolute path; choose Never, or a path below the job's working folder, such as `src`"
        )
    return found


def _mounts(container: JsonObject) -> Iterator[tuple[JsonObject, str]]:
    """Yield what the container mounts, and in which folder below the working folder; that of images' own is ours."""
    for number, mount in enumerate(mounts_of(container)):
        where = f"volumeMounts {mount['name']}"
        if unknown := sorted(field for field, value in mount.items() if value and field not in _OF_A_MOUNT):
            raise InvalidInput(f"{where}: {unknown[0]} is not known to this provider; leave it out")
        if mount.get("subPath") or mount.get("subPathExpr"):
            raise InvalidInput(f"{where}: subPath is not known to this provider; choose keys by items")
        path = str(mount.get("mountPath", "")).removeprefix("./").rstrip("/")
        if path.startswith("/"):
            yield mount, f"{VOLUMES}/{number}"
        elif not path or any(part in {"", ".", "..", VOLUMES} for part in path.split("/")):
            raise InvalidInput(
                f"{where}: mountPath {mount.get('mountPath')!r}: give one below the job's working folder, such as `src`"
            )
        else:
            yield mount, path


def _refuse_binary(config_map: JsonObject | None, where: str) -> None:
    if (config_map or {}).get("binaryData"):
        raise InvalidInput(f"{where}: binaryData of a ConfigMap is not known to this provider; use a Secret")


def _chosen(data: Mapping[str, str], source: JsonObject, missing: bool, where: str) -> dict[str, str]:  # noqa: FBT001
    if missing and not source.get("optional"):
        # no InvalidInput: it may come
        raise LookupError(f"{where}: {source.get('name') or source.get('secretName')} does not exist")
    if not source.get("items"):
        return dict(data)
    absent = [item["key"] for item in source["items"] if item["key"] not in data]
    if absent and not source.get("optional"):
        raise LookupError(f"{where}: {source.get('name') or source.get('secretName')} has no key {absent[0]}")
    return {item["path"]: data[item["key"]] for item in source["items"] if item["key"] in data}


def _placed(path: str, files: Mapping[str, str]) -> dict[str, str]:
    return {f"{path}/{name}": text for name, text in files.items()}
