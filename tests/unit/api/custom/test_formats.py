"""String formats."""

from __future__ import annotations

import pytest

from minik8s_modules.api.custom.formats import check_of


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2026-01-31", "2026-02-31"),
        ("date-time", "2026-01-31T10:00:00Z", "2026-01-31 10:00"),
        ("duration", "1h30m", "soon"),
        ("ipv4", "10.0.0.1", "10.0.0.256"),
        ("ipv6", "::1", "10.0.0.1"),
        ("cidr", "10.0.0.0/8", "10.0.0.0"),
        ("mac", "01:23:45:67:89:ab", "01:23"),
        ("uuid", "11111111-2222-4333-8444-555555555555", "1111"),
        ("uuid4", "11111111-2222-4333-8444-555555555555", "11111111-2222-1333-8444-555555555555"),
        ("hostname", "a.example.com", "a_b"),
        ("email", "a@example.com", "a"),
        ("uri", "https://example.com/x", "example.com"),
        ("byte", "YQ==", "a"),
        ("hexcolor", "#FFF", "#FF"),
        ("rgbcolor", "rgb(1,2,255)", "rgb(1,2,256)"),
        ("isbn13", "978-0321751041", "978-0321751042"),
        ("isbn10", "0321751043", "0321751044"),
        ("creditcard", "4111 1111 1111 1111", "4111 1111 1111 1112"),
        ("ssn", "123-45-6789", "12-345-6789"),
        ("bsonobjectid", "507f1f77bcf86cd799439011", "507f"),
    ],
)
def test_formats(name, good, bad):
    check = check_of(name)
    assert check is not None
    assert check(good)
    assert not check(bad)


@pytest.mark.parametrize("name", ["", "password", "int32", "no-such-format"])
def test_a_format_that_is_not_known_says_nothing(name):
    assert check_of(name) is None
