"""YAML of manifests."""

from __future__ import annotations

import yaml

from minik8s_modules.base.manifest_yaml import ManifestLoader


def test_a_bare_equals_sign_stands_for_itself() -> None:
    assert yaml.load("enum: [=, '!=', on]", Loader=ManifestLoader) == {"enum": ["=", "!=", True]}


def test_other_loaders_are_left_alone() -> None:
    assert "tag:yaml.org,2002:value" not in yaml.SafeLoader.yaml_constructors
