"""The original's command lines become kubectl's; all others stay as they are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.original.translating import as_get, own_connection, translated, verb_of

THERE = {"job/gpujob", "job.batch/pi", "job/both", "job.batch/both", "horizontalpodautoscaler/old"}


def names(argv: Sequence[str]) -> set[str]:
    """Answer as kubectl does, which is asked for both kinds by name in the cluster that was named."""
    assert argv[0] == "get"
    assert "--ignore-not-found" in argv
    return THERE


def rewritten(path: str, *, recursive: bool, dialect: str) -> str:
    """Return where a file of the original is read from."""
    return f"{path}!{dialect}{'+' if recursive else ''}" if path.startswith("old") else path


@pytest.mark.parametrize(
    ("line", "kubectls"),
    [
        ("delete pod -p shop -n web", "delete pod web -n shop"),
        ("delete pods -p shop --name web", "delete pods web -n shop"),
        ("describe job -p shop -n gpujob", "describe -n shop legacyjob/gpujob"),
        ("describe pod --name web -n shop", "describe pod -n shop web"),
        ("delete pod -n web", "delete pod web"),
        ("delete -n=web rs", "delete rs web"),
        ("delete pod web -n shop", "delete pod web -n shop"),
        ("delete pod/web -n shop", "delete pod/web -n shop"),
        ("delete pods --all -n shop", "delete pods --all -n shop"),
        ("delete pods -l app=web -n shop", "delete pods -l app=web -n shop"),
        ("delete -f new.yml -n shop", "delete -f new.yml -n shop"),
        ("delete pod,svc -n web", "delete pod,svc -n web"),
        ("describe pod -n shop", "describe pod -n shop"),
        ("patch pod web -p {}", "patch pod web -p {}"),
        ("logs -p -f web", "logs -p -f web"),
        ("get hpas", "get legacyhorizontalpodautoscaler"),
        ("get hpa -n shop -o wide", "get legacyhorizontalpodautoscaler -n shop -o wide"),
        ("get jobs", "get job.batch,legacyjob"),
        ("get jobs -w", "get legacyjob -w"),
        ("-n job get job", "-n job get job.batch,legacyjob"),
        ("get pods,hpas -A", "get -A pods,hpa"),
        ("get hpas old", "get legacyhorizontalpodautoscaler/old"),
        ("get job gpujob pi -o wide", "get -o wide legacyjob/gpujob job/pi"),
        ("get job both", "get job both"),
        ("get job nobody", "get job nobody"),
        ("-n shop delete job/gpujob pod/web", "delete -n shop legacyjob/gpujob pod/web"),
        ("get pod hpas", "get pod hpas"),
        ("get -w=false hpas", "get -w=false legacyhorizontalpodautoscaler"),
        ("get -n hpas pods", "get -n hpas pods"),
        ("get -o jsonpath={.a} job pi", "get -o jsonpath={.a} job pi"),
        ("apply -f new.yml -f old.yml", "apply -f new.yml -f old.yml!"),
        ("apply -Rf old", "apply -R -f old!+"),
        ("apply --filename=a.yml,old.yml --dialect original", "apply -f a.yml -f old.yml!original"),
        ("create --dialect=kubernetes -fold.yml", "create -f old.yml!kubernetes"),
        ("create configmap c --from-file old", "create configmap c --from-file old"),
        ("run web --image x -- cat -f old.yml", "run web --image x -- cat -f old.yml"),
        ("create job j --image x -- cat -f old.yml", "create job j --image x -- cat -f old.yml"),
    ],
)
def test_the_originals_forms_become_kubectls(line, kubectls):
    assert " ".join(translated(line.split(), names, rewritten)) == kubectls


def test_where_there_is_nothing_of_the_original_kubernetes_types_are_listed_alone():
    asked: list[list[str]] = []

    def none_there(argv: Sequence[str]) -> set[str]:
        asked.append(list(argv))
        return {"job.batch/pi"}

    assert translated(["get", "jobs", "-A"], none_there, rewritten) == ["get", "jobs", "-A"]
    assert translated(["get", "hpas"], none_there, rewritten) == ["get", "hpa"]
    assert asked[0] == ["get", "job.batch,legacyjob", "--ignore-not-found", "-o", "name", "-A"]


@pytest.mark.parametrize("line", ["apply --dialect new -f x", "apply --dialect original"])
def test_a_dialect_that_means_nothing_is_refused(line):
    with pytest.raises(UsageError, match="--dialect"):
        translated(line.split(), names, rewritten)


@pytest.mark.parametrize(
    ("line", "verb"),
    [
        ("--context get describe pod", "describe"),
        ("-nget -v 9 apply", "apply"),
        ("--help", ""),
        ("-s=x top pod", "top"),
    ],
)
def test_the_command_is_the_first_word_that_is_no_options_value(line, verb):
    assert verb_of(line.split()) == verb


def test_what_a_command_is_about_is_a_get_of_it():
    line = "-n shop rollout status deploy/web --timeout 5s --watch --context c -f x.yml"
    assert as_get(line.split(), 2) == ["get", "deploy/web", "-n", "shop", "--context", "c", "-f", "x.yml"]
    assert as_get(["why", "pods", "-A", "--faults", "-l", "app=web"]) == ["get", "pods", "-A", "-l", "app=web"]


def test_our_own_client_follows_a_kubeconfig_and_its_context_alone():
    assert own_connection(["get", "pods", "--kubeconfig", "k", "--context=c", "-n", "x", "--request-timeout=9s"])
    assert not own_connection(["get", "pods", "--server", "https://x"])
    assert not own_connection(["get", "pods", "--as=eve"])
