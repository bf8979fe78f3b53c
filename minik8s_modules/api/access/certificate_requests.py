"""What a certificate signing request (PKCS #10) asks for, read once for all: admission, approval and signing. Pure.

A request is read strictly. What no signer here puts into a certificate is no detail to pass over: it is what makes a
certificate say something else to another reader, so such a request is refused as a whole. Certificates are made of what
is returned here (controllers/access/signing.py), never of the request's own bytes.
"""

from __future__ import annotations

import base64
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import NameOID, ObjectIdentifier

from minik8s_modules.api.access.certificate_names import COMMON_NAME, ORGANIZATION, names_of
from minik8s_modules.api.syntax import dns1123_subdomain

NODE_PREFIX, NODES = "system:node:", "system:nodes"
# RFC 5280, appendix A.1: ub-common-name, ub-organization-name
_LONGEST = 64
_EXTENSION_REQUEST = ObjectIdentifier("1.2.840.113549.1.9.14")
_NAMES = {NameOID.COMMON_NAME: COMMON_NAME, NameOID.ORGANIZATION_NAME: ORGANIZATION}
# what programs put into requests by habit; a certificate has those of the object's usages
_USUAL = (x509.KeyUsage, x509.ExtendedKeyUsage, x509.BasicConstraints)
_CALLED = dict(zip((each.oid for each in _USUAL), ("keyUsage", "extendedKeyUsage", "basicConstraints"), strict=True))

# what reading a certificate or a request raises, early or late: the library reads when it is asked
UNREADABLE = (
    ValueError,  # of base64, too
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.UnsupportedGeneralNameType,
)


class RequestedCertificate(NamedTuple):
    """What a request asks for; ``extensions`` names those beside the alternative names."""

    common_name: str
    organizations: tuple[str, ...]
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


class Request(NamedTuple):
    """A request that can be read: what it asks for, and the key it is for."""

    asked: RequestedCertificate
    key: CertificatePublicKeyTypes


def load(request: str) -> x509.CertificateSigningRequest:
    """Return the request in ``spec.request``, of which nothing is known but that it is one.

    Raises:
        ValueError: it is none.
    """
    try:
        return x509.load_pem_x509_csr(base64.b64decode(request, validate=True))
    except UNREADABLE as error:
        raise ValueError(f"unable to parse csr: {error}") from error


def parse(request: str) -> Request:
    """Return the request in ``spec.request`` (base64 of PEM).

    Raises:
        ValueError: it is none, its signature is not by its own key, or it asks for what no signer gives; says what.
    """
    found = load(request)
    try:
        is_signed, key = found.is_signature_valid, found.public_key()
        attributes = [each.oid for each in found.attributes]
        subject, extensions = found.subject, found.extensions
    except UNREADABLE as error:
        raise ValueError(f"unable to parse csr: {error}") from error
    if not is_signed:
        raise ValueError("unable to verify the signature of the csr")
    if attributes not in ([], [_EXTENSION_REQUEST]):
        detail = ", ".join(each.dotted_string for each in attributes)
        raise ValueError(f"the csr has the attributes {detail}; only one request for extensions is allowed")
    return Request(_asked(subject, extensions), key)


def _asked(subject: x509.Name, extensions: x509.Extensions) -> RequestedCertificate:
    common_name, organizations = names_of((_attribute(each.oid), str(each.value)) for each in subject)
    _check_subject(subject)
    for extension in extensions:
        _check_extension(extension)
    names = next((each.value for each in extensions if isinstance(each.value, x509.SubjectAlternativeName)), None)

    def alternatives(kind: type[x509.GeneralName]) -> tuple[str, ...]:
        return tuple(str(each.value) for each in names or () if isinstance(each, kind))

    return RequestedCertificate(
        common_name,
        organizations,
        alternatives(x509.DNSName),
        alternatives(x509.IPAddress),
        alternatives(x509.RFC822Name),
        alternatives(x509.UniformResourceIdentifier),
        tuple(_called(each.oid) for each in extensions if not isinstance(each.value, x509.SubjectAlternativeName)),
    )


def _attribute(oid: ObjectIdentifier) -> str:
    return _NAMES.get(oid, oid.dotted_string)


def _check_subject(subject: x509.Name) -> None:
    """Refuse what might be read otherwise: further attributes, repeated ones, and several in one RDN."""
    pairs = [(_attribute(each.oid), str(each.value)) for each in subject]
    for name, value in pairs:
        if name not in _NAMES.values():
            raise ValueError(f"the subject has the attribute {name}; users are named by CN and O alone")
        if len(value) > _LONGEST:
            raise ValueError(f"the subject has a value of {len(value)} characters; {_LONGEST} are allowed (RFC 5280)")
    if len(set(pairs)) < len(pairs):
        raise ValueError("the subject has the same organization twice")
    if any(len(rdn) > 1 for rdn in subject.rdns):
        raise ValueError("the subject has several attributes in one relative distinguished name")


def _check_extension(extension: x509.Extension[x509.ExtensionType]) -> None:
    match extension.value:
        case x509.SubjectAlternativeName() as names:
            kinds = (x509.DNSName, x509.IPAddress, x509.RFC822Name, x509.UniformResourceIdentifier)
            for each in names:
                if not isinstance(each, kinds):
                    detail = f"subjectAltNames of the form {type(each).__name__} are not allowed"
                    raise ValueError(detail)  # noqa: TRY004 - bad content, not a bad call
                if not str(each.value) or not str(each.value).isprintable():
                    raise ValueError(f"the subjectAltName {each.value!r} is empty, or cannot be printed")
        case x509.BasicConstraints(ca=True):
            raise ValueError("a certificate authority cannot be requested")
        case value if not isinstance(value, _USUAL):
            raise ValueError(f"the extension {_called(extension.oid)} is not given")


def _called(oid: ObjectIdentifier) -> str:
    return _CALLED.get(oid, oid.dotted_string)


def node_of(asked: RequestedCertificate) -> str:
    """Return the node whose certificate is asked for.

    Raises:
        ValueError: the subject is not exactly a node's.
    """
    if asked.organizations != (NODES,):
        raise ValueError(f"subject organization is not {NODES}")
    if not asked.common_name.startswith(NODE_PREFIX):
        raise ValueError(f"subject common name does not begin with {NODE_PREFIX}")
    node = asked.common_name.removeprefix(NODE_PREFIX)
    for why in dns1123_subdomain(node):
        raise ValueError(f"subject common name {asked.common_name!r} names no node: {why}")
    return node
