"""Errors of providers are recognised by what caused them, not by what was merely being handled."""

from __future__ import annotations

import pytest

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.virtual import registry
from minik8s_modules.virtual.errors import InvalidInput, NotFound, is_invalid_input, is_not_found
from minik8s_modules.virtual.providers.mock import make


def _raised(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def test_the_whole_chain_of_causes_counts() -> None:
    assert is_not_found(_raised(RuntimeError("outer"), _raised(ValueError("middle"), NotFound("inner"))))
    assert is_invalid_input(_raised(RuntimeError("outer"), InvalidInput("inner")))
    assert not is_not_found(_raised(RuntimeError("outer"), InvalidInput("inner")))


def test_what_was_handled_meanwhile_is_no_cause() -> None:
    error = RuntimeError("and it cannot be created")
    error.__context__ = NotFound("not there yet")
    assert not is_not_found(error)


def test_a_provider_is_found_by_its_name_and_an_unknown_one_is_refused_with_the_names_there_are() -> None:
    assert registry.factory("mock") is make
    with pytest.raises(ConfigurationError, match=r"no provider 'mokc'; there are .*mock"):
        registry.factory("mokc")
