"""Subjects and requests are read once, and strictly: what another reader might read otherwise is refused."""

from __future__ import annotations

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import AttributeOID, ExtendedKeyUsageOID, NameOID

from minik8s_modules.api.access.certificate_names import Names, names_of, peer_names
from minik8s_modules.api.access.certificate_requests import RequestedCertificate, node_of, parse

CN, O = "commonName", "organizationName"  # noqa: E741 - as subjects are written


def encoded(builder: x509.CertificateSigningRequestBuilder) -> str:
    made = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


def for_subject(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.CertificateSigningRequestBuilder:
    subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    return x509.CertificateSigningRequestBuilder().subject_name(subject)


JANE = for_subject((NameOID.ORGANIZATION_NAME, "people"), (NameOID.COMMON_NAME, "jane"))


def test_the_common_name_is_the_user_and_organizations_are_groups_in_their_order():
    found = names_of([(O, "b"), ("countryName", "DE"), (CN, "jané doe"), (O, "a")])
    assert found == Names("jané doe", ("b", "a"))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ([], "no common name"),
        ([(O, "people")], "no common name"),
        ([(CN, "a"), (CN, "b")], "2 common names: 'a', 'b'"),
        ([(CN, "a"), (O, "x"), (CN, "a")], "2 common names"),
        ([(CN, "")], "the value ''"),
        ([(CN, "a"), (O, "")], "the value ''"),
        ([(CN, "a\0b")], r"the value 'a\\x00b'"),
        ([(CN, "a\nb")], "must be printable"),
        ([(CN, "a"), (O, "x\u202ey")], "must be printable"),
    ],
)
def test_a_subject_that_others_read_otherwise_names_nobody(attributes: list[tuple[str, str]], message: str):
    with pytest.raises(ValueError, match=message):
        names_of(attributes)


def test_a_multi_valued_rdn_hides_no_second_name():
    assert peer_names({"subject": (((O, "x"), (CN, "a")),)}) == Names("a", ("x",))
    with pytest.raises(ValueError, match="2 common names"):
        peer_names({"subject": (((CN, "a"), (CN, "b")),)})


@pytest.mark.parametrize("certificate", [None, {}])
def test_no_certificate_names_nobody(certificate: dict[str, str] | None):
    with pytest.raises(ValueError, match="the client presented no certificate"):
        peer_names(certificate)


def test_a_request_says_what_it_asks_for():
    names = [x509.DNSName("a.example"), x509.RFC822Name("a@example"), x509.UniformResourceIdentifier("spiffe://a/b")]
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = JANE.add_extension(x509.SubjectAlternativeName(names), critical=True).add_extension(usage, critical=False)
    assert parse(encoded(builder)).asked == RequestedCertificate(
        "jane", ("people",), ("a.example",), (), ("a@example",), ("spiffe://a/b",), ("extendedKeyUsage",)
    )


@pytest.mark.parametrize(
    ("builder", "message"),
    [
        (for_subject((NameOID.COMMON_NAME, "a"), (NameOID.COUNTRY_NAME, "DE")), "the attribute 2.5.4.6"),
        (
            for_subject(*[(NameOID.ORGANIZATION_NAME, "a")] * 2, (NameOID.COMMON_NAME, "a")),
            "the same organization twice",
        ),
        (JANE.add_extension(x509.OCSPNoCheck(), critical=True), "the extension 1.3.6.1.5.5.7.48.1.5 is not given"),
        (JANE.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=False), "a certificate authority"),
        (JANE.add_extension(x509.SubjectAlternativeName([x509.DNSName("")]), critical=False), "is empty"),
        (JANE.add_attribute(AttributeOID.CHALLENGE_PASSWORD, b"x"), "the attributes 1.2.840.113549.1.9.7"),
    ],
)
def test_a_request_for_more_than_a_signer_gives_is_refused(
    builder: x509.CertificateSigningRequestBuilder, message: str
):
    with pytest.raises(ValueError, match=message):
        parse(encoded(builder))


@pytest.mark.filterwarnings("ignore:Attribute's length")
def test_a_name_that_no_certificate_has_room_for_is_refused():
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x" * 65, _validate=False)])
    with pytest.raises(ValueError, match="a value of 65 characters; 64 are allowed"):
        parse(encoded(x509.CertificateSigningRequestBuilder().subject_name(name)))


@pytest.mark.parametrize("text", ["", "!!", base64.b64encode(b"no pem").decode()])
def test_what_is_no_request_is_refused(text: str):
    with pytest.raises(ValueError, match="unable to parse csr"):
        parse(text)


def test_every_damaged_request_is_refused_with_a_reason_or_reads_alike():
    """One byte after the other is spoilt: whoever reads DER lazily may fail late, and with anything."""
    pem = base64.b64decode(
        encoded(JANE.add_extension(x509.SubjectAlternativeName([x509.DNSName("a")]), critical=False))
    )
    der = x509.load_pem_x509_csr(pem).public_bytes(serialization.Encoding.DER)
    for place in range(len(der)):
        spoilt = der[:place] + bytes([der[place] ^ 0x41]) + der[place + 1 :]
        body = base64.encodebytes(spoilt).decode()
        text = f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n"
        with pytest.raises(ValueError, match=r".+"):
            parse(base64.b64encode(text.encode()).decode())


@pytest.mark.parametrize(
    "asked",
    [
        RequestedCertificate("system:node:n1", ()),
        RequestedCertificate("system:node:n1", ("system:nodes", "system:masters")),
        RequestedCertificate("n1", ("system:nodes",)),
        RequestedCertificate("system:node:", ("system:nodes",)),
        RequestedCertificate("system:node:*", ("system:nodes",)),
        RequestedCertificate("system:node:N1", ("system:nodes",)),
        RequestedCertificate("system:node:a/b", ("system:nodes",)),
    ],
)
def test_only_exactly_a_nodes_subject_is_one(asked: RequestedCertificate):
    assert node_of(RequestedCertificate("system:node:n1.example", ("system:nodes",))) == "n1.example"
    with pytest.raises(ValueError, match="subject"):
        node_of(asked)
