"""Random ids are unique, also in a process that was forked after the first of them."""

import os
import re

from minik8s_modules.base.ids import random_uid, random_word


def test_uids_are_uuids_of_version_4_and_none_comes_twice() -> None:
    made = [random_uid() for _ in range(2000)]

    assert len(set(made)) == len(made)
    assert all(
        re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", each) for each in made
    )


def test_words_use_all_of_the_alphabet_at_every_place() -> None:
    words = [random_word("abc", 5) for _ in range(500)]

    assert {len(word) for word in words} == {5}
    assert all({word[place] for word in words} == set("abc") for place in range(5))


def test_a_forked_process_hands_out_others() -> None:
    random_uid()  # what is drawn beforehand is copied into the child
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, ",".join(random_uid() for _ in range(20)).encode())
        os._exit(0)
    os.waitpid(child, 0)

    theirs = set(os.read(read, 4096).decode().split(","))

    assert len(theirs) == 20
    assert not theirs & {random_uid() for _ in range(200)}
