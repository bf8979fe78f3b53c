"""Names people write lead to kinds; wrong ones to a sentence that helps."""

from __future__ import annotations

import pytest

from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.resources import parse_targets


@pytest.mark.parametrize("word", ["pods", "pod", "po", "Pod"])
def test_every_spelling_of_a_type_means_the_same_kind(word):
    assert parse_targets([word])[0].kind.kind == "Pod"


def test_types_by_comma_are_several_targets():
    assert [target.kind.kind for target in parse_targets(["po,no"])] == ["Pod", "Node"]


def test_a_category_is_all_of_its_kinds():
    assert {"pods", "services"} <= {target.kind.plural for target in parse_targets(["all"])}


def test_slashed_words_name_an_object_each():
    targets = parse_targets(["pod/web", "node/n1"])
    assert [(target.kind.kind, target.names) for target in targets] == [("Pod", ("web",)), ("Node", ("n1",))]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name a resource type"),
        (["gizmos"], 'have a resource type "gizmos"'),
        (["pods,nodes", "web"], "one resource type only"),
        (["pod/web", "db"], "cannot be mixed"),
        (["pod/"], "cannot be mixed"),
    ],
)
def test_a_wrong_target_is_explained(words, message):
    with pytest.raises(UsageError, match=message):
        parse_targets(words)
