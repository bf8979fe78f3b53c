"""When a new object's resourceVersion is looked at: when it is stored, after validation, and not by a dry run."""

from __future__ import annotations

import pytest

from minik8s_modules.api.errors import BadRequest, Invalid
from minik8s_modules.api.kinds import CONFIG_MAP
from minik8s_modules.api.objects import JsonObject, metadata
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import writing

PLACE = Target(CONFIG_MAP, "default")


def sent(name: str = "a") -> JsonObject:
    return {"metadata": {"name": name, "resourceVersion": "5"}}


def test_a_resource_version_is_refused_when_the_object_is_stored(backend: Backend, options: Options) -> None:
    with pytest.raises(BadRequest, match="resourceVersion should not be set on objects to be created"):
        writing.create(backend, PLACE, sent(), options)
    assert backend.cache.get(CONFIG_MAP.key("default", "a")) is None


def test_what_is_invalid_is_told_first(backend: Backend, options: Options) -> None:
    with pytest.raises(Invalid):
        writing.create(backend, PLACE, sent("no name"), options)


def test_a_dry_run_does_not_look_at_it(backend: Backend, options: Options) -> None:
    made = writing.create(backend, PLACE, sent(), options._replace(dry_run=True))
    assert "resourceVersion" not in metadata(made.object)
