#!/usr/bin/python
# Copyright: the minik8s authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: the certificate authorities, certificates and kubeconfigs of a cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_certificates
short_description: Certificate authorities, certificates and kubeconfigs of a cluster
description:
  - Takes the whole declared set. A certificate that is missing, expires soon, was signed by another authority, does
    not match its key, or differs from what is declared is issued again with a new key. Everything else stays as it is.
  - Keys are EC P-256. A key is written with its final owner and mode from the start and is never returned.
  - If an authority is issued again, so are all its certificates.
options:
  authorities:
    description: Self-signed authorities, valid for ten years.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: Name that a certificate's O(certificates.authority) refers to., type: str, required: true}
      common_name: {description: Subject of the authority., type: str, required: true}
      certificate:
        description: File of trusted certificates (mode 0644), see M(minik8s_authorities). The one that matches the key
          signs.
        type: path
        required: true
      key: {description: File of the private key (mode 0600)., type: path, required: true}
      owner: {description: User that may read the key., type: str, default: root}
      group: {description: Group of both files., type: str, default: root}
  certificates:
    description: Certificates with their keys in files.
    type: list
    elements: dict
    default: []
    suboptions:
      certificate: {description: File of the certificate (mode 0644)., type: path, required: true}
      key: {description: File of the private key (mode 0600)., type: path, required: true}
      authority: {description: Name of the authority that signs., type: str, required: true}
      common_name: {description: Subject., type: str, required: true}
      organizations: {description: Groups of the subject., type: list, elements: str, default: []}
      names:
        description: DNS names and IP addresses it is valid for. An IPv6 range stands for its first address.
        type: list
        elements: str
        default: []
      usages:
        description: What it may be used for.
        type: list
        elements: str
        choices: [server, client]
        required: true
      owner: {description: User that may read the key., type: str, default: root}
      group: {description: Group of both files., type: str, default: root}
  kubeconfigs:
    description: Client certificates embedded in kubeconfig files (mode 0600).
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: The kubeconfig file., type: path, required: true}
      server: {description: URL of the API server., type: str, required: true}
      authority: {description: Name of the authority that signs and that the client trusts., type: str, required: true}
      common_name: {description: User name., type: str, required: true}
      organizations: {description: Groups of the user., type: list, elements: str, default: []}
      owner: {description: User that may read the file., type: str, default: root}
      group: {description: Group of the file., type: str, default: root}
  validity_days:
    description: How long certificates and kubeconfigs are valid.
    type: int
    default: 365
  renew_days:
    description: Certificates that expire within this many days are issued again.
    type: int
    default: 90
attributes:
  check_mode: {description: Says what would be issued and why., support: full}
  diff_mode: {description: Shows what changes in which file and why; never key material., support: full}
  idempotent: {description: Nothing is issued while what is there will do., support: full}
requirements: [cryptography, PyYAML]
author: the minik8s authors
"""

EXAMPLES = r"""
- name: The cluster authority and the administrator's kubeconfig are there
  minik8s_certificates:
    authorities:
      - {name: cluster, common_name: minik8s, certificate: /etc/minik8s/pki/ca.crt, key: /etc/minik8s/pki/ca.key}
    kubeconfigs:
      - path: /etc/minik8s/admin.kubeconfig
        server: https://127.0.0.1:6443
        authority: cluster
        common_name: minik8s-admin
        organizations: [system:masters]
"""

RETURN = r"""
steps:
  description: What was done (in check mode, would be done), with the reason.
  returned: always
  type: list
  elements: dict
  sample: [{action: issue, place: /etc/minik8s/pki/ca.crt, reason: it is missing or cannot be read}]
"""

import base64
import datetime
import grp
import json
import os
import pwd
import time
from pathlib import Path
from typing import Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible.module_utils.minik8s.core.owned_files import access_of, write_file
from ansible.module_utils.minik8s.install.certificates import (
    AUTHORITY_DAYS,
    CertificateFiles,
    CertificateStep,
    DeclaredCertificate,
    Identity,
    address_of,
    diff,
    kubeconfig,
    plan_certificates,
)

try:
    import yaml
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    MISSING: str | None = str(error)
else:
    MISSING = None

USAGES = {"server": "SERVER_AUTH", "client": "CLIENT_AUTH"}


class Signer(NamedTuple):
    """An authority's certificate and key, loaded."""

    certificate: Any
    key: Any


class Declared(NamedTuple):
    """One entry of the options: what is wanted, the key's file (empty for a kubeconfig), the authority's place."""

    wanted: DeclaredCertificate
    key: str


def declared_set(params: dict[str, Any]) -> list[Declared]:
    """Return every entry of the options in one form; an authority is named by its certificate's file."""
    places = {entry["name"]: entry["certificate"] for entry in params["authorities"]}
    result = [
        Declared(
            DeclaredCertificate(
                a["certificate"], "", Identity(a["common_name"], (), (), ()), "", (a["owner"], a["group"], "0600")
            ),
            a["key"],
        )
        for a in params["authorities"]
    ]
    for entry in [*params["certificates"], *params["kubeconfigs"]]:
        if entry["authority"] not in places:
            raise ValueError(f"authority {entry['authority']!r} of {entry['common_name']} is not among the authorities")
        identity = Identity(
            entry["common_name"],
            tuple(sorted(entry["organizations"])),
            tuple(sorted(str(general_name(name).value) for name in entry.get("names", []))),
            tuple(sorted(entry.get("usages", ["client"]))),
        )
        access = (entry["owner"], entry["group"], "0600")
        place = entry.get("path") or entry["certificate"]
        wanted = DeclaredCertificate(place, places[entry["authority"]], identity, entry.get("server", ""), access)
        result.append(Declared(wanted, entry.get("key", "")))
    return result


def identity_of(certificate: Any) -> Identity:
    """Return what ``certificate`` says."""

    def subject(oid: Any) -> tuple[str, ...]:
        return tuple(sorted(str(a.value) for a in certificate.subject.get_attributes_for_oid(oid)))

    names: list[str] = []
    usages: list[str] = []
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            names = [str(name.value) for name in extension.value]
        if isinstance(extension.value, x509.ExtendedKeyUsage):
            usages = [name for name, oid in USAGES.items() if getattr(ExtendedKeyUsageOID, oid) in extension.value]
    common = subject(NameOID.COMMON_NAME)
    return Identity(
        common[0] if len(common) == 1 else "",  # of more than one nobody knows which counts
        subject(NameOID.ORGANIZATION_NAME),
        tuple(sorted(names)),
        tuple(sorted(usages)),
    )


def read_pair(entry: Declared) -> tuple[bytes, bytes, str, bytes]:
    """Return certificate, key, server and embedded authority of ``entry`` (the last two of kubeconfigs only)."""
    if entry.key:
        return Path(entry.wanted.place).read_bytes(), Path(entry.key).read_bytes(), "", b""
    config = yaml.safe_load(Path(entry.wanted.place).read_text(encoding="utf-8"))
    user, cluster = config["users"][0]["user"], config["clusters"][0]["cluster"]
    parts = [
        base64.b64decode(value)
        for value in (
            user["client-certificate-data"],
            user["client-key-data"],
            cluster["certificate-authority-data"],
        )
    ]
    return parts[0], parts[1], str(cluster["server"]), parts[2]


def observe(entry: Declared, entries: dict[str, Declared]) -> CertificateFiles | None:
    """Return what stands in the files of ``entry``; None when something is missing or cannot be read."""
    try:
        pem, key_pem, server, embedded = read_pair(entry)
        key = serialization.load_pem_private_key(key_pem, None)
        certificate = fitting(pem, key)
        issuer = load_signer(entries[entry.wanted.authority]).certificate if entry.wanted.authority else certificate
        issuer_pem = Path(entry.wanted.authority or entry.wanted.place).read_bytes()
        access = access_of(entry.key or entry.wanted.place)
    except (OSError, ValueError, KeyError, IndexError, TypeError, yaml.YAMLError):
        return None
    fits = key.public_key() == certificate.public_key()
    trusted = signed_by(certificate, issuer) and embedded in {b"", issuer_pem}
    not_after_s = certificate.not_valid_after_utc.timestamp()
    return CertificateFiles(identity_of(certificate), not_after_s, trusted, fits, server, access)


def fitting(pem: bytes, key: Any) -> Any:
    """Return the certificate in ``pem`` that fits ``key``, the first when none does."""
    found = x509.load_pem_x509_certificates(pem)
    return next((each for each in found if each.public_key() == key.public_key()), found[0])


def signed_by(certificate: Any, issuer: Any) -> bool:
    """Return whether ``issuer`` signed ``certificate``."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except Exception:  # noqa: BLE001 - cryptography raises ValueError, TypeError or InvalidSignature: all mean no
        return False
    return True


def issue(wanted: DeclaredCertificate, signer: Signer | None, days: int) -> Signer:
    """Return a new key with its certificate, signed by ``signer`` (by itself when None)."""
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in wanted.identity.organizations]
    attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, wanted.identity.common_name))
    subject = x509.Name(attributes)
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer.certificate.subject if signer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
    )
    for extension, critical in extensions(wanted.identity, key, signer):
        builder = builder.add_extension(extension, critical=critical)
    return Signer(builder.sign(signer.key if signer else key, hashes.SHA256()), key)


def extensions(identity: Identity, key: Any, signer: Signer | None) -> list[tuple[Any, bool]]:
    """Return the extensions of a certificate, each with whether it is critical (RFC 5280, 4.2)."""
    unused = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    bits = dict.fromkeys((*unused, "encipher_only", "decipher_only"), False)
    own = signer is None
    usage = x509.KeyUsage(digital_signature=not own, key_cert_sign=own, crl_sign=own, **bits)
    authority_key = signer.key.public_key() if signer else key.public_key()
    result: list[tuple[Any, bool]] = [
        (x509.BasicConstraints(ca=own, path_length=0 if own else None), True),
        (usage, True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key), False),
    ]
    if identity.usages:
        result.append(
            (
                x509.ExtendedKeyUsage([getattr(ExtendedKeyUsageOID, USAGES[name]) for name in identity.usages]),
                False,
            )
        )
    if identity.names:
        result.append((x509.SubjectAlternativeName([general_name(name) for name in identity.names]), False))
    return result


def general_name(name: str) -> Any:
    """Return ``name`` as an IP address where it stands for one, else as a DNS name."""
    address = address_of(name)
    return x509.IPAddress(address) if address else x509.DNSName(name)


def load_signer(entry: Declared) -> Signer:
    """Return the authority that stands in the files of ``entry``."""
    key = serialization.load_pem_private_key(Path(entry.key).read_bytes(), None)
    return Signer(fitting(Path(entry.wanted.place).read_bytes(), key), key)


def apply(step: CertificateStep, entries: dict[str, Declared], days: int) -> None:
    """Carry out one step; an authority's files are complete before its certificates are issued."""
    entry = entries[step.place]
    owner, group, mode = entry.wanted.access
    if step.action == "protect":
        os.chown(entry.key or step.place, pwd.getpwnam(owner).pw_uid, grp.getgrnam(group).gr_gid)
        Path(entry.key or step.place).chmod(int(mode, 8))
        return
    signer = load_signer(entries[entry.wanted.authority]) if entry.wanted.authority else None
    made = issue(entry.wanted, signer, days if signer else AUTHORITY_DAYS)
    certificate = made.certificate.public_bytes(serialization.Encoding.PEM)
    key = made.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    if entry.key:
        write_file(entry.key, key, entry.wanted.access)
        write_file(step.place, certificate, (owner, group, "0644"))
    else:
        authority = Path(entry.wanted.authority).read_bytes()
        document = kubeconfig(entry.wanted, authority, certificate, key)
        write_file(step.place, json.dumps(document, indent=2).encode() + b"\n", entry.wanted.access)


AUTHORITY = {
    "name": {"type": "str", "required": True},
    "common_name": {"type": "str", "required": True},
    "certificate": {"type": "path", "required": True},
    "key": {"type": "path", "required": True, "no_log": False},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
}
SUBJECT = {
    "authority": {"type": "str", "required": True},
    "common_name": {"type": "str", "required": True},
    "organizations": {"type": "list", "elements": "str", "default": []},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
}
CERTIFICATE = {
    **SUBJECT,
    "certificate": {"type": "path", "required": True},
    "key": {"type": "path", "required": True, "no_log": False},
    "names": {"type": "list", "elements": "str", "default": []},
    "usages": {"type": "list", "elements": "str", "choices": ["server", "client"], "required": True},
}
KUBECONFIG = {
    **SUBJECT,
    "path": {"type": "path", "required": True},
    "server": {"type": "str", "required": True},
}


def main() -> None:
    """Observe, plan, apply, report."""
    module = AnsibleModule(
        argument_spec={
            "authorities": {"type": "list", "elements": "dict", "required": True, "options": AUTHORITY},
            "certificates": {"type": "list", "elements": "dict", "default": [], "options": CERTIFICATE},
            "kubeconfigs": {"type": "list", "elements": "dict", "default": [], "options": KUBECONFIG},
            "validity_days": {"type": "int", "default": 365},
            "renew_days": {"type": "int", "default": 90},
        },
        supports_check_mode=True,
    )
    if MISSING:
        module.fail_json(msg=missing_required_lib("cryptography and PyYAML"), reason=MISSING)
    steps: list[CertificateStep] = []
    shown: dict[str, str] = {}
    try:
        entries = {entry.wanted.place: entry for entry in declared_set(module.params)}
        found = {place: observe(entry, entries) for place, entry in entries.items()}
        wanted = {place: entry.wanted for place, entry in entries.items()}
        steps = plan_certificates([*wanted.values()], found, time.time(), module.params["renew_days"] * 86400.0)
        shown = diff(steps, wanted, found, module.params["validity_days"])
        if not module.check_mode:
            for step in steps:
                apply(step, entries, module.params["validity_days"])
    except (ValueError, KeyError, OSError) as error:
        module.fail_json(msg=f"cannot provide the certificates: {error}")
    module.exit_json(changed=bool(steps), steps=[step._asdict() for step in steps], diff=shown)


if __name__ == "__main__":
    main()
