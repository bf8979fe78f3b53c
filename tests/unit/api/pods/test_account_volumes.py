"""The volume of the account's token, as Kubernetes' admission makes it."""

from __future__ import annotations

from minik8s_modules.api.pods import account_volumes


def test_the_pod_says_first_then_its_account_then_yes():
    for pod, account, wanted in [
        ({}, {}, True),
        ({}, {"automountServiceAccountToken": False}, False),
        ({"automountServiceAccountToken": True}, {"automountServiceAccountToken": False}, True),
        ({"automountServiceAccountToken": False}, {}, False),
    ]:
        assert account_volumes.wants_token({"spec": pod}, account) is wanted


def test_a_volume_that_came_along_is_used_again():
    volume = account_volumes.volume("kube-api-access-old")
    pod = {"spec": {"containers": [{"name": "a"}], "volumes": [volume]}}
    account_volumes.add(pod, "fresh")
    assert [each["name"] for each in pod["spec"]["volumes"]] == ["kube-api-access-old"]
    assert pod["spec"]["containers"][0]["volumeMounts"][0]["name"] == "kube-api-access-old"
