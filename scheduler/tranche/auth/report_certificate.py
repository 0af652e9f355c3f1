"""Certificates of the report API: a CA of its own, which training pods trust, and a serving certificate that it signs.

The serving certificate is renewed after two thirds of its validity. A new CA is published long before it signs, at the
renewal before the one that needs it, so that running pods have received it by then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFETIME = timedelta(days=3650)
CA_RESERVE = timedelta(days=730)
"""Remaining validity of the CA below which the next one is made."""
LIFETIME = timedelta(days=90)
RENEWAL = timedelta(days=30)
"""Remaining validity of the serving certificate at which it is renewed."""
BACKDATED = timedelta(days=1)
"""Certificates are valid from before now, because the clocks of training nodes may be behind."""
CA_FILE, CA_KEY_FILE, CERTIFICATE_FILE, KEY_FILE = "ca.crt", "ca.key", "tls.crt", "tls.key"
"""Keys of the Secret, as of a Secret of cert-manager."""


@dataclass(frozen=True, slots=True)
class Credential:
    """Certificate of an authority or a server, with its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def renewed(data: Mapping[str, bytes], hosts: Sequence[str], now: datetime) -> dict[str, bytes] | None:
    """Return the Secret's data with new certificates; None if none is due.

    Args:
        data: Present data; empty, or unreadable, for a new CA.
        hosts: DNS names of the server.
        now: Current time, with a time zone.
    """
    bundle, authority = _authority(data, now)
    if authority is not None and _serves(data, hosts, now, bundle):
        return None
    if authority is None:
        authority = _make_authority(now)
        bundle = [authority.certificate]
    server = _sign(authority, hosts, now)
    if authority.certificate.not_valid_after_utc - now < CA_RESERVE:
        authority = _make_authority(now)
        bundle = [*bundle, authority.certificate]
    return {
        CA_FILE: b"".join(_pem(certificate) for certificate in bundle),
        CA_KEY_FILE: _key_pem(authority.key),
        CERTIFICATE_FILE: _pem(server.certificate),
        KEY_FILE: _key_pem(server.key),
    }


def validity(chain: bytes) -> tuple[datetime, datetime]:
    """Return from when and until when all certificates of a chain, PEM, are valid.

    Raises:
        ValueError: the chain cannot be read.
    """
    certificates = x509.load_pem_x509_certificates(chain)
    return max(one.not_valid_before_utc for one in certificates), min(one.not_valid_after_utc for one in certificates)


def _authority(data: Mapping[str, bytes], now: datetime) -> tuple[list[x509.Certificate], Credential | None]:
    """Return the valid CA certificates, oldest first, and the CA that signs; None if there is none."""
    try:
        bundle = [
            certificate
            for certificate in x509.load_pem_x509_certificates(data[CA_FILE])
            if certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
        ]
        key = serialization.load_pem_private_key(data[CA_KEY_FILE], None)
    except (KeyError, ValueError):
        return [], None
    if not bundle or not isinstance(key, ec.EllipticCurvePrivateKey) or bundle[-1].public_key() != key.public_key():
        return [], None
    return bundle, Credential(bundle[-1], key)


def _serves(data: Mapping[str, bytes], hosts: Sequence[str], now: datetime, bundle: list[x509.Certificate]) -> bool:
    """Return whether the serving certificate is of these CAs, is for these hosts, has its key and is not due."""
    try:
        certificate = x509.load_pem_x509_certificate(data[CERTIFICATE_FILE])
        key = serialization.load_pem_private_key(data[KEY_FILE], None)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        issuer = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    except (KeyError, ValueError, x509.ExtensionNotFound):
        return False
    authority_ids = {x509.SubjectKeyIdentifier.from_public_key(authority.public_key()).digest for authority in bundle}
    return (
        set(names.get_values_for_type(x509.DNSName)) == set(hosts)
        and issuer in authority_ids
        and certificate.public_key() == key.public_key()
        and certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc - RENEWAL
    )


def _make_authority(now: datetime) -> Credential:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("tranche reports")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(name, name, key, now, CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return Credential(certificate, key)


def _sign(authority: Credential, hosts: Sequence[str], now: datetime) -> Credential:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    certificate = (
        _builder(_name("tranche-reports"), authority.certificate.subject, key, now, LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return Credential(certificate, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
