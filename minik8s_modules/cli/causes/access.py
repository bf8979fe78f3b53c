"""Why a binding gives nobody anything, an account or a Secret is of no use, or a signing request waits."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import CLUSTER_ROLE, NAMESPACE, ROLE, SECRET, SERVICE_ACCOUNT
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.causes.faults import Fault, kubectl, resource
from minik8s_modules.cli.causes.surroundings import Around

_TLS = "kubernetes.io/tls"


def binding_faults(binding: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield what a RoleBinding or ClusterRoleBinding names and is not there."""
    role, namespace = binding.get("roleRef") or {}, objects.namespace(binding)
    kind, name = (ROLE, str(role.get("name"))) if role.get("kind") == "Role" else (CLUSTER_ROLE, str(role.get("name")))
    if around.lacks(kind, name, namespace if kind.namespaced else ""):
        message = f"it gives nothing: there is no {kind.kind} {name}"
        yield Fault(message, kubectl(namespace if kind.namespaced else "", "get", kind.plural))
    if not binding.get("subjects"):
        yield Fault("it names no subject, so it grants nothing", kubectl(namespace, "edit", resource(binding)))
    for subject in binding.get("subjects") or []:
        where = str(subject.get("namespace") or namespace)
        if subject.get("kind") == "ServiceAccount" and around.lacks(SERVICE_ACCOUNT, str(subject.get("name")), where):
            message = f"there is no ServiceAccount {subject.get('name')} in namespace {where}"
            yield Fault(message, kubectl(where, "get", "serviceaccounts"))


def account_faults(account: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield the Secrets for pulling images that are not there."""
    namespace = objects.namespace(account)
    for one in account.get("imagePullSecrets") or []:
        if around.lacks(SECRET, str(one.get("name")), namespace):
            message = f"there is no Secret {one.get('name')} for pulling images in namespace {namespace}"
            yield Fault(message, kubectl(namespace, "get", "secrets"))


def request_faults(request: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why a CertificateSigningRequest has no certificate."""
    name = objects.name(request)
    for kind in ("Denied", "Failed"):
        condition = objects.condition(request, kind) or {}
        if condition.get("status", "True" if condition else "") == "True":
            message = f"{kind}: {condition.get('reason', '')}: {condition.get('message', '')}"
            yield Fault(message, f"kubectl describe csr {name}")
            return
    if objects.condition(request, "Approved") is None:
        yield Fault("it waits for approval", f"kubectl certificate approve {name}")
    elif not objects.status(request).get("certificate"):
        signer = objects.spec(request).get("signerName")
        yield Fault(f"it is approved, and {signer} has not signed it", "kubectl -n kube-system get leases")
    _ = around


def secret_faults(secret: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield what is wrong with a certificate in a Secret; other Secrets are data."""
    if secret.get("type") == _TLS:
        fault = certificate_fault(secret, around)
        if fault:
            yield Fault(fault, replace_certificate(objects.namespace(secret), objects.name(secret)))


def replace_certificate(namespace: str, name: str) -> str:
    """Return the command that puts another certificate into a Secret."""
    made = kubectl(namespace, "create", "secret", "tls", name, "--cert=tls.crt", "--key=tls.key", "--dry-run=client")
    return f"{made} -o yaml | kubectl apply -f -"


def certificate_fault(secret: JsonObject, around: Around) -> str:
    """Return what is wrong with the certificate and key of a Secret, "" for nothing."""
    named, data = f"Secret {objects.key(secret)}", secret.get("data") or {}
    missing = [key for key in ("tls.crt", "tls.key") if not data.get(key)]
    if missing:
        return f"{named} has no {' and no '.join(missing)}"
    marks = (("tls.crt", b"CERTIFICATE"), ("tls.key", b"PRIVATE KEY"))
    plain = [key for key, mark in marks if not _pem(data[key], mark)]
    if plain:
        return f"{' and '.join(plain)} of {named} is not PEM"
    return _validity(base64.b64decode(data["tls.crt"]), named, around)


def _pem(text: str, mark: bytes) -> bool:
    try:
        plain = base64.b64decode(text)
    except (binascii.Error, ValueError):
        return False
    return b"-----BEGIN " in plain and mark in plain


def _validity(text: bytes, named: str, around: Around) -> str:
    from cryptography import x509  # noqa: PLC0415 - 50 ms, for certificates alone

    try:
        certificate = x509.load_pem_x509_certificate(text)
    except ValueError:
        return f"tls.crt of {named} cannot be read as a certificate"
    if certificate.not_valid_after_utc < around.now:
        return f"the certificate of {named} expired at {certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    if certificate.not_valid_before_utc > around.now:
        return f"the certificate of {named} is valid only from {certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}"
    return ""


def grant_faults(grant: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield the namespaces of a HostGrant that do not exist."""
    for name in objects.spec(grant).get("namespaces") or []:
        if around.lacks(NAMESPACE, str(name)):
            yield Fault(f"it gives hosts to namespace {name}, which does not exist", "kubectl get namespaces")
