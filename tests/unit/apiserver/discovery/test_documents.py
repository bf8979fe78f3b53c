"""Discovery and OpenAPI tell the same kinds as the registry."""

from __future__ import annotations

import tracemalloc
from itertools import chain

import orjson
import pytest

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import CONFIG_MAP, KINDS
from minik8s_modules.apiserver.discovery import discovery, openapi, openapi_patches, openapi_protobuf, openapi_v2
from minik8s_modules.apiserver.http import incoming
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.reads.selection import select
from minik8s_modules.apiserver.verbs import deleting
from minik8s_modules.apiserver.verbs.patching import STRATEGIC_MERGE_PATCH
from minik8s_modules.module_utils.minik8s.rpc.protobuf import decode


def test_every_kind_is_in_both_forms_of_discovery():
    groups = [*discovery.aggregated("v2", core=True)["items"], *discovery.aggregated("v2", core=False)["items"]]
    fields = {
        (group["metadata"].get("name", ""), version["version"], resource["resource"])
        for group in groups
        for version in group["versions"]
        for resource in version["resources"]
    }
    assert fields == {(kind.group, kind.version, kind.plural) for kind in KINDS.all()}
    for group, versions in KINDS.groups().items():
        for version in versions:
            listed = discovery.resource_list(group, version)["resources"]
            names = {entry["name"] for entry in listed}
            assert {kind.plural for kind in KINDS.in_group(group, version)} <= names


def test_subresources_name_their_kind():
    resources = {entry["name"]: entry for entry in discovery.resource_list("", "v1")["resources"]}
    assert resources["pods/binding"]["kind"] == "Binding"
    assert resources["pods/status"]["verbs"] == ["get", "patch", "update"]


@pytest.mark.parametrize("kind", KINDS.all(), ids=lambda kind: f"{kind.group}.{kind.kind}")
def test_the_document_of_a_kind_is_closed_and_offers_field_validation(kind):
    body, digest = openapi.document(kind.group, kind.version)
    assert openapi.document(kind.group, kind.version)[1] == digest
    document = orjson.loads(body)
    schemas = document["components"]["schemas"]
    assert kind.definition in schemas
    referred = {part.split('"')[0] for part in body.decode().split("#/components/schemas/")[1:]}
    assert referred <= schemas.keys()
    wanted = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    writes = [
        operation
        for path in document["paths"].values()
        for method, operation in path.items()
        if method in {"post", "patch"} and operation["x-kubernetes-group-version-kind"] == wanted
    ]
    assert writes or not {"create", "patch"} & set(kind.verbs)
    shared = document["components"]["parameters"]
    for operation in writes:
        named = [p.get("name") or shared[p["$ref"].rsplit("/", 1)[1]]["name"] for p in operation["parameters"]]
        assert "fieldValidation" in named


@pytest.mark.parametrize("kind", KINDS.all(), ids=lambda kind: f"{kind.group}.{kind.kind}")
def test_every_reference_within_a_document_leads_somewhere(kind):
    document = orjson.loads(openapi.document(kind.group, kind.version)[0])
    for reference in _references(document):
        at = document
        for part in reference.removeprefix("#/").split("/"):
            at = at[part]
        assert at


@pytest.mark.parametrize("kind", KINDS.all(), ids=lambda kind: f"{kind.group}.{kind.kind}")
def test_every_kind_can_be_explained(kind):
    """As kubectl's template looks: an operation at the resource's path has the kind, a described type has it, too."""
    document = orjson.loads(openapi.document(kind.group, kind.version)[0])
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    places = [
        f"{root}{scope}/{kind.plural}{end}" for scope in ("", "/namespaces/{namespace}") for end in ("", "/{name}")
    ]
    served = [document["paths"][place] for place in places if place in document["paths"]]
    fields = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    found = [operation for one in served for method, operation in one.items() if method != "parameters"]
    assert fields in [operation["x-kubernetes-group-version-kind"] for operation in found]
    types = document["components"]["schemas"].values()
    described = [one for one in types if fields in one.get("x-kubernetes-group-version-kind", [])]
    assert described
    assert described[0]["description"]
    assert described[0]["properties"]


@pytest.mark.parametrize(("group", "versions"), KINDS.groups().items())
def test_what_names_a_kind_has_no_list_of_values_as_in_kubernetes(group, versions):
    for version in versions:
        types = orjson.loads(openapi.document(group, version)[0])["components"]["schemas"]
        naming = [types[kind.definition]["properties"] for kind in KINDS.in_group(group, version)]
        assert naming
        found = [fields[name] for fields in naming for name in ("apiVersion", "kind")]
        assert not [each for each in found if "enum" in each]


def _references(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def test_a_patch_writes_out_what_kubectl_looks_for():
    paths = orjson.loads(openapi.document("", "v1")[0])["paths"]
    patches = [served["patch"] for served in paths.values() if "patch" in served]
    assert patches
    for operation in patches:  # kubectl follows references to #/parameters/ only, the place of version 2
        assert {"dryRun", "fieldValidation"} <= {p.get("name") for p in operation["parameters"]}
        assert "application/strategic-merge-patch+json" in operation["requestBody"]["content"]


def test_structures_that_are_always_refused_are_not_offered():
    types = orjson.loads(openapi.document("", "v1")[0])["components"]["schemas"]
    assert {"emptyDir", "hostPath", "secret"} <= types["io.k8s.api.core.v1.Volume"]["properties"].keys()
    assert "cephfs" not in types["io.k8s.api.core.v1.Volume"]["properties"]
    assert "io.k8s.api.core.v1.CephFSVolumeSource" not in types
    assert "hostUsers" in types["io.k8s.api.core.v1.PodSpec"]["properties"], "a plain value is explained"
    persistent = types["io.k8s.api.core.v1.PersistentVolumeSpec"]["properties"]
    assert "csi" in persistent, "what is stored is offered"


def test_version_2_tells_every_kind_and_its_references_lead_somewhere():
    document = orjson.loads(openapi_v2.document())
    definitions = document["definitions"]
    fields = {
        (each["group"], each["version"], each["kind"])
        for name in definitions
        for each in definitions[name].get("x-kubernetes-group-version-kind", [])
    }
    assert {(kind.group, kind.version, kind.kind) for kind in KINDS.all()} <= fields
    assert {reference.removeprefix("#/definitions/") for reference in _references(document)} <= definitions.keys()
    written = document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]
    assert "application/strategic-merge-patch+json" in written["patch"]["consumes"]
    assert {"name": "namespace", "in": "path", "required": True, "type": "string"} in written["parameters"]
    body = {"$ref": "#/definitions/io.k8s.api.apps.v1.Deployment"}
    assert {"name": "body", "in": "body", "required": True, "schema": body} in written["put"]["parameters"]
    options = {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"}
    assert {"name": "body", "in": "body", "schema": options} in written["delete"]["parameters"]
    assert {"name": "gracePeriodSeconds", "in": "query", "type": "integer"} in written["delete"]["parameters"]
    containers = definitions["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"


class _Heard(dict[str, str]):
    """Arguments that note which of them somebody asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, key, default=None):
        self.names.add(key)
        return super().get(key, default)

    def __contains__(self, key):
        self.names.add(key)
        return super().__contains__(key)


def test_what_a_delete_of_a_collection_takes_is_listed_as_kube_apiserver_does(backend):
    document = orjson.loads(openapi.document("", "v1")[0])
    shared = document["components"]
    operation = document["paths"]["/api/v1/namespaces/{namespace}/configmaps"]["delete"]
    listed = {shared["parameters"][each["$ref"].rpartition("/")[2]]["name"] for each in operation["parameters"]}
    # kube-apiserver's, but for timeoutSeconds and sendInitialEvents, which change nothing of a deletion
    assert listed == {
        "continue", "dryRun", "fieldSelector", "gracePeriodSeconds", "labelSelector", "limit", "orphanDependents",
        "propagationPolicy", "resourceVersion", "resourceVersionMatch",
    }  # fmt: skip
    heard = _Heard()
    target, options = Target(CONFIG_MAP, "default"), incoming.options_of(heard)
    deleting.delete_collection(backend, select(target, heard), heard, deleting.delete_options({}, heard), options)
    assert listed <= heard.names
    body = shared["requestBodies"][operation["requestBody"]["$ref"].rpartition("/")[2]]
    assert body["content"]["application/json"]["schema"]["$ref"].endswith(".DeleteOptions")
    assert not body.get("required")
    types = {name: shared["parameters"][name]["schema"]["type"] for name in ("limit", "orphanDependents", "continue")}
    assert types == {"limit": "integer", "orphanDependents": "boolean", "continue": "string"}


def test_every_document_is_in_the_index():
    for path, entry in openapi.index()["paths"].items():
        assert entry["serverRelativeURL"].startswith(f"/openapi/v3/{path}?hash=")


def test_commands_that_write_many_objects_are_named_documents_of_patches_alone():
    for path, entry in openapi_patches.index()["paths"].items():
        address = entry["serverRelativeURL"]
        assert address.startswith(f"/openapi/v3/{path}?hash=")
        assert address.endswith("&only=patch")
    assert openapi_patches.index()["paths"].keys() == openapi.index()["paths"].keys()
    whole, short = openapi.document("", "v1")[0], openapi_patches.document("", "v1")[0]
    assert len(short) < len(whole) / 30


@pytest.mark.parametrize("kind", [kind for kind in KINDS.all() if "patch" in kind.verbs], ids=lambda kind: kind.kind)
def test_a_document_of_patches_says_what_kubectl_looks_up(kind):
    document = orjson.loads(openapi_patches.document(kind.group, kind.version)[0])
    wanted = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    (patch,) = [
        served["patch"]
        for served in document["paths"].values()
        if served["patch"]["x-kubernetes-group-version-kind"] == wanted
    ]
    assert {(each["name"], each["in"]) for each in patch["parameters"]} == {
        ("dryRun", "query"),
        ("fieldValidation", "query"),
    }
    assert "requestBody" not in patch, "then kubectl looks in the document of version 2"


OURS = [kind for kind in KINDS.all() if kind.definition.startswith("io.minik8s.") and "patch" in kind.verbs]


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.kind)
def test_the_document_as_protobuf_merges_lists_of_our_kinds_as_the_whole_one_does(kind):
    def merged(types, schema, seen=()):
        schema = schema["allOf"][0] | schema if "allOf" in schema else schema
        found = {field: schema[field] for field in schema if field.startswith("x-kubernetes-patch")}
        if name := schema.get("$ref", "").rpartition("/")[2]:
            return found if name in seen else found | merged(types, types[name], (*seen, name))
        held = {field: merged(types, one, seen) for field, one in schema.get("properties", {}).items()}
        if schema.get("items"):
            held["[]"] = merged(types, schema["items"], seen)
        if isinstance(values := schema.get("additionalProperties"), dict):
            held["{}"] = merged(types, values, seen)
        return {"type": schema.get("type")} | found | held

    types = orjson.loads(openapi.document(kind.group, kind.version)[0])["components"]["schemas"]
    as_protobuf = _definitions()
    wanted = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    (of_kind,) = [each for each in as_protobuf.values() if wanted in each.get("x-kubernetes-group-version-kind", [])]
    each = merged(types, types[kind.definition])
    assert len(each) > 1
    assert merged(as_protobuf, of_kind) == each


def test_the_document_as_protobuf_says_which_kinds_take_strategic_merge_patches_by_it():
    (*paths,) = decode(openapi_protobuf.DOCUMENT, openapi_protobuf.document())["paths"]["path"]
    found = [orjson.loads(path["value"]["patch"]["vendor_extension"][0]["value"]["yaml"]) for path in paths]
    assert found == [{"group": kind.group, "version": kind.version, "kind": kind.kind} for kind in OURS]
    assert {*chain(*(path["value"]["patch"]["consumes"] for path in paths))} == {STRATEGIC_MERGE_PATCH}


def test_a_document_as_protobuf_is_one_that_kubectl_parses():
    """It refuses the whole of it for a reference that leads nowhere or has a type, and for an array of nothing."""
    definitions = _definitions()
    todo = list(definitions.values())
    while todo:
        schema = todo.pop()
        if "$ref" in schema:
            assert schema["$ref"].removeprefix("#/definitions/") in definitions
            assert not {"type", "properties"} & schema.keys()
        assert schema.get("type") in {None, "object", "array", "string", "integer", "number", "boolean"}
        assert (schema.get("type") == "array") == ("items" in schema)
        todo += [
            *schema.get("properties", {}).values(),
            *(schema[each] for each in ("items", "additionalProperties") if each in schema),
        ]


def _definitions():
    """Return the types of the document as JSON schemas."""

    def schema(found):
        told = {each["name"]: orjson.loads(each["value"]["yaml"]) for each in found["vendor_extension"]}
        plain = {"$ref": found["_ref"], "type": found["type"] and found["type"]["value"]}
        inner = {
            name: schema(found[field]["schema"])
            for name, field in (("items", "items"), ("additionalProperties", "additional_properties"))
            if found[field]
        }
        if found["properties"]:
            inner["properties"] = named(found["properties"]["additional_properties"])
        return {**told, **{field: value for field, value in plain.items() if value}, **inner}

    def named(found):
        return {each["name"]: schema(each["value"]) for each in found}

    return named(decode(openapi_protobuf.DOCUMENT, openapi_protobuf.document())["definitions"]["additional_properties"])


def test_groups_that_are_not_served_are_not_found():
    with pytest.raises(NotFound):
        discovery.resource_list("example.com", "v1")
    with pytest.raises(NotFound):
        openapi.document("example.com", "v1")
    with pytest.raises(NotFound):
        openapi_patches.document("example.com", "v1")
    with pytest.raises(NotFound):
        discovery.group("example.com")


@pytest.mark.parametrize("made", [openapi_v2.document, lambda: openapi.document("apps", "v1")[0]])
def test_a_document_holds_no_more_memory_than_its_length(made):
    openapi_v2.document.cache_clear()
    openapi.of_kinds.cache_clear()
    tracemalloc.start()
    try:
        document = made()
        (held,) = (trace.size for trace in tracemalloc.take_snapshot().traces if trace.size >= len(document))
    finally:
        tracemalloc.stop()
    assert held < len(document) + 100
