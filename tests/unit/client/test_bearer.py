"""Tokens of kubeconfigs, of files, and of the pod one runs in."""

from __future__ import annotations

import base64

import pytest
import yaml

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client.bearer import Bearer, in_cluster, own_namespace
from minik8s_modules.client.kubeconfig import Access, load_kubeconfig


def kubeconfig(path, **user):
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority-data": base64.b64encode(b"PEM").decode()}
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return load_kubeconfig(path)


def test_a_token_may_stand_in_the_kubeconfig(tmp_path):
    access = kubeconfig(tmp_path / "config", token="secret-token")
    assert Bearer(access).headers() == {"Authorization": "Bearer secret-token"}
    assert "secret-token" not in repr(access)


def test_without_a_token_nothing_is_shown(tmp_path):
    assert Bearer(kubeconfig(tmp_path / "config")).headers() == {}


def test_a_file_goes_before_a_token_and_is_read_again_when_it_is_replaced(tmp_path):
    file = tmp_path / "token"
    file.write_text("first\n")
    bearer = Bearer(kubeconfig(tmp_path / "config", token="other", tokenFile="token"))
    assert bearer.headers() == {"Authorization": "Bearer first"}
    file.write_text("second")
    assert bearer.headers() == {"Authorization": "Bearer second"}
    file.unlink()
    assert bearer.headers() == {"Authorization": "Bearer second"}


@pytest.mark.parametrize(
    ("content", "message"), [(None, "cannot read token file"), ("", "is empty"), ("a\r\nX-Other: b", "characters")]
)
def test_files_that_hold_no_token_are_named(tmp_path, content, message):
    if content is not None:
        (tmp_path / "token").write_text(content)
    with pytest.raises(ConfigurationError, match=message):
        Bearer(kubeconfig(tmp_path / "config", tokenFile="token"))


def test_a_token_of_another_type_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="token must be a string"):
        kubeconfig(tmp_path / "config", token=12)


def test_a_pod_has_the_access_of_its_account(tmp_path):
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert in_cluster(environ, tmp_path) is None
    for name, content in (("token", "t"), ("ca.crt", "PEM"), ("namespace", "jobs\n")):
        (tmp_path / name).write_text(content)
    found = in_cluster(environ, tmp_path)
    assert found == Access("https://[fd00::1]:443", b"PEM", b"", b"", token_file=str(tmp_path / "token"))
    assert own_namespace(tmp_path) == "jobs"
    assert in_cluster({}, tmp_path) is None
    (tmp_path / "ca.crt").unlink()
    with pytest.raises(ConfigurationError, match=r"ca\.crt"):
        in_cluster(environ, tmp_path)
