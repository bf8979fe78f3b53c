"""Headers of HTTP/2: the examples of RFC 7541, and what etcd says."""

from __future__ import annotations

import pytest

from minik8s_modules.module_utils.minik8s.rpc import hpack


@pytest.mark.parametrize(
    ("block", "found"),
    [
        # C.2.1, C.2.2 and C.2.4: a literal that is to be remembered, one with an indexed name, an indexed field
        ("400a637573746f6d2d6b65790d637573746f6d2d686561646572", {"custom-key": "custom-header"}),
        ("040c2f73616d706c652f70617468", {}),
        ("82", {}),
        # C.4.3: with Huffman's code
        ("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf", {"custom-key": "custom-value"}),
        ("20400a637573746f6d2d6b65790d637573746f6d2d686561646572", {"custom-key": "custom-header"}),
        ("", {}),
    ],
)
def test_the_examples_of_the_rfc_are_read(block, found):
    assert hpack.fields(bytes.fromhex(block)) == found


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 400, 20_000])
def test_what_is_written_is_read(size):
    pairs = (("te", "trailers"), ("x" * max(1, size), "y" * size))
    assert hpack.fields(hpack.literals(pairs)) == dict(pairs)


@pytest.mark.parametrize("cut", range(1, 24))
def test_a_block_that_is_cut_off_is_no_other_block(cut):
    block = bytes.fromhex("400a637573746f6d2d6b65790d637573746f6d2d686561646572")
    with pytest.raises(hpack.BadHeaders, match="cut off"):
        hpack.fields(block[:cut])


def test_a_string_that_holds_its_end_is_refused():
    with pytest.raises(hpack.BadHeaders, match="its own end"):
        hpack.fields(bytes.fromhex("000161") + b"\x84\xff\xff\xff\xff")
