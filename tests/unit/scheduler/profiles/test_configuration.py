"""KubeSchedulerConfiguration: what it makes of the plugins, and what is refused, with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from minik8s_modules.base.config import Configuration, load
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.scheduler.deciding.cycle import decide
from minik8s_modules.scheduler.deciding.profile import Profile
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.main import settings_of
from minik8s_modules.scheduler.profiles.building import benches
from minik8s_modules.scheduler.profiles.configuration import settings
from minik8s_modules.scheduler.profiles.located import parse
from tests.unit.scheduler.worlds import node, pod

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
NO_STRATEGY = """profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: Best
"""
NO_CANDIDATES = """profiles:
- pluginConfig:
  - name: DefaultPreemption
    args: {minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}
"""
IDLE_DEFAULTS = """profiles:
- pluginConfig:
  - name: PodTopologySpread
    args: {defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}
"""


def profile(text: str, name: str = "default-scheduler") -> Profile:
    found = benches(settings(parse(HEAD + text, "f.yml")))[name].profile
    assert found is not None
    return found


def names(text: str, point: str = "filter") -> list[str]:
    return [one.name for one in getattr(profile(text), point)]


def weights(text: str) -> dict[str, int]:
    return {one.name: weight for one, weight in profile(text).score}


def test_without_profiles_it_is_kubernetes_default():
    assert weights("") == {
        "TaintToleration": 3, "NodeAffinity": 2, "NodeResourcesFit": 1, "PodTopologySpread": 2, "InterPodAffinity": 2,
        "NodeResourcesBalancedAllocation": 1, "ImageLocality": 1,
    }  # fmt: skip
    assert names("") == [
        "NodeReady", "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts",
        "NodeResourcesFit", "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone",
        "PodTopologySpread", "InterPodAffinity",
    ]  # fmt: skip


def test_a_plugin_is_disabled_at_one_point_and_goes_on_at_others():
    text = "profiles: [{plugins: {score: {disabled: [{name: NodeAffinity}]}}}]\n"
    assert "NodeAffinity" not in weights(text)
    assert "NodeAffinity" in names(text)


def test_a_star_disables_all_and_what_is_enabled_then_is_all():
    text = "profiles: [{plugins: {score: {disabled: [{name: '*'}], enabled: [{name: ImageLocality, weight: 7}]}}}]\n"
    assert weights(text) == {"ImageLocality": 7}


def test_multi_point_takes_a_plugin_everywhere():
    text = "profiles: [{plugins: {multiPoint: {disabled: [{name: TaintToleration}]}}}]\n"
    assert "TaintToleration" not in names(text)
    assert "TaintToleration" not in weights(text)
    anew = "profiles: [{plugins: {multiPoint: {enabled: [{name: TaintToleration, weight: 9}]}}}]\n"
    assert weights(anew)["TaintToleration"] == 9
    assert names(anew) == names("")


def test_what_a_point_names_anew_comes_first_there():
    text = "profiles: [{plugins: {filter: {enabled: [{name: NodePorts}]}}}]\n"
    assert names(text)[0] == "NodePorts"
    assert sorted(names(text)) == sorted(names(""))


def test_profiles_stand_beside_each_other():
    text = "percentageOfNodesToScore: 30\n"
    text += "profiles: [{schedulerName: a}, {schedulerName: b, percentageOfNodesToScore: 60}]\n"
    made = benches(settings(parse(HEAD + text, "f.yml")))
    assert {name: one.profile.percentage for name, one in made.items() if one.profile} == {"a": 30, "b": 60}


def test_arguments_reach_their_plugin():
    text = """profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: team, operator: In, values: [red]}]}]
"""
    found = benches(settings(parse(HEAD + text, "f.yml")))["default-scheduler"]
    nodes = Snapshot.of([node("a"), node("b", labels={"team": "red"})], [])
    decision = decide(pod("p"), nodes, found)
    assert decision.node == "b"
    alone = decide(pod("p"), Snapshot.of([node("a")], []), found)
    assert "node(s) didn't match scheduler-enforced node affinity" in alone.message
    assert PodInfo.of(pod("p")).priority == 0


def test_a_node_that_gets_the_labels_of_the_added_affinity_wakes_the_pods_it_kept_away():
    text = """profiles:
- pluginConfig:
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: team, operator: In, values: [red]}]}]
"""
    labelled = profile(text).wakes("NodeAffinity")[1]
    assert labelled.hint is not None
    red, blue = node("a", labels={"team": "red"}), node("a", labels={"team": "blue"})
    assert labelled.hint(PodInfo.of(pod("p")), node("a"), red)
    assert not labelled.hint(PodInfo.of(pod("p")), node("a"), blue)
    assert not labelled.hint(PodInfo.of(pod("p")), red, red)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profile: []", "f.yml:3: profile: there is no such field"),
        ("profiles: 5", "f.yml:3: profiles: it must be a list, not int"),
        ("percentageOfNodesToScore: 101", "f.yml:3: percentageOfNodesToScore: it must be an integer between 0 and 100"),
        ("profiles:\n- schedulerName: a\n- schedulerName: a", "f.yml:5: profiles[1].schedulerName: another profile"),
        ("profiles:\n- plugins:\n    filter:\n      enabled:\n      - name: Nope",
         "f.yml:7: profiles[0].plugins.filter.enabled[0].name: there is no plugin Nope"),
        ("profiles:\n- plugins: {multiPoint: {enabled: [{name: DynamicResources}]}}",
         "f.yml:4: profiles[0].plugins.multiPoint.enabled[0].name: there is no DynamicResources: dynamic resource"),
        ("profiles:\n- plugins: {score: {enabled: [{name: SelectorSpread}]}}",
         "there is no SelectorSpread: PodTopologySpread spreads pods by its defaults"),
        ("profiles:\n- plugins: {filter: {enabled: [{name: ImageLocality}]}}",
         "f.yml:4: profiles[0].plugins.filter.enabled[0].name: ImageLocality has nothing to do at filter"),
        ("profiles:\n- plugins: {filter: {enabled: [{name: NodePorts, weight: 3}]}}",
         "f.yml:4: profiles[0].plugins.filter.enabled[0].weight: only scores have weights"),
        ("profiles:\n- plugins: {bind: {disabled: [{name: '*'}]}}", "plugins.bind has none: pods are bound by one"),
        (NO_STRATEGY,
         "f.yml:8: profiles[0].pluginConfig[0].args.scoringStrategy.type: it must be LeastAllocated"),
        ("profiles:\n- pluginConfig:\n  - name: InterPodAffinity\n    args: {hardPodAffinityWeight: 101}",
         "f.yml:6: profiles[0].pluginConfig[0].args.hardPodAffinityWeight: it must be an integer between 0 and 100"),
        (NO_CANDIDATES, "cannot both be 0"),
        (IDLE_DEFAULTS, "they count only with defaultingType"),
        ("extenders: []", "f.yml:3: extenders: scheduler extenders (webhooks) are not supported"),
        ("podInitialBackoffSeconds: 20", "podMaxBackoffSeconds: it must not be less than podInitialBackoffSeconds, 20"),
        ("profiles: [\n", "f.yml:4: it is not valid YAML"),
        ("metricsBindAddress: 0.0.0.0:1", "f.yml:3: metricsBindAddress: set metrics.listen in the daemon's own"),
        ("profiles: &all\n- *all", "f.yml:3: 0: it contains itself"),
        ("profiles:\n- plugins:\n    2: {}", "f.yml:5: 2: a key must be a string"),
        ("profiles: []\n\0", "f.yml:4: it is not valid YAML: special characters are not allowed"),
        ("kind: Twice", "f.yml:3: kind: it is given twice"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_key_and_line(text: str, message: str):
    with pytest.raises(ConfigurationError) as raised:
        benches(settings(parse(HEAD + text, "f.yml")))
    assert message in str(raised.value)


def test_a_file_of_another_version_is_refused():
    with pytest.raises(ConfigurationError, match="apiVersion: it must be kubescheduler"):
        settings(parse("apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration", "f.yml"))


def test_the_daemon_takes_a_policy_or_a_file(tmp_path: Path):
    assert settings_of(Configuration({}, "s.yml")).lease == "minik8s-scheduler"
    first = settings_of(Configuration({"policy": "round-robin"}, "s.yml")).profiles[0]
    assert [one.name for one in first.plugins["score"].enabled] == ["RoundRobin"]
    own = "leaderElection: {leaderElect: false, resourceName: mine}\nprofiles: [{schedulerName: mine}]\n"
    whole, part = tmp_path / "whole.yml", tmp_path / "scheduler.yml"
    whole.write_text(f"{HEAD}{own}clientConnection: {{kubeconfig: /k}}\n")
    below = "".join(f"  {line}\n" for line in (HEAD + own).splitlines())
    part.write_text(f"kubeconfig: /k\nconfiguration:\n{below}")
    for file in (whole, part):
        found = settings_of(load(file))
        assert (found.elect, found.lease, found.profiles[0].name) == (False, "mine", "mine")
    assert settings_of(load(whole)).kubeconfig == "/k"
    alone = part.read_text()
    part.write_text(f"{alone}  clientConnection: {{kubeconfig: /other}}\n")
    with pytest.raises(ConfigurationError, match="set kubeconfig beside configuration, in the daemon's own"):
        settings_of(load(part))
    part.write_text(f"{alone}policy: random\n")
    with pytest.raises(ConfigurationError, match="either policy or configuration"):
        settings_of(load(part))
    part.write_text(part.read_text().replace("schedulerName", "name").replace("policy: random", ""))
    with pytest.raises(
        ConfigurationError, match=r"scheduler.yml:6: configuration.profiles\[0\].name: there is no such"
    ):
        settings_of(load(part))
    with pytest.raises(ConfigurationError, match="policy must be round-robin"):
        settings_of(Configuration({"policy": "best"}, "s.yml"))
