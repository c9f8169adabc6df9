"""Policy files against the networks that they come from."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from primal_attention.tasks import DataError
from primal_attention.tasks.rl.collect import record
from primal_attention.tasks.rl.environments import get_environment
from primal_attention.tasks.rl.policies import Diluted, LinearPolicy, for_episode, load_policy

_given = os.environ.get("PRIMAL_ATTENTION_DATA")
REAL_DATA = Path(_given) if _given else Path(__file__).parents[3].parent / "shared" / "data"


def network(act, prefix, head):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), act(), nn.Linear(5, 4), act(), nn.Linear(4, 2)).double()
    names = (f"{prefix}.0", f"{prefix}.2", head)
    layers = [layer for layer in net if isinstance(layer, nn.Linear)]
    arrays = {}
    for name, layer in zip(names, layers, strict=True):
        arrays[f"{name}.weight"] = layer.weight.detach().numpy()
        arrays[f"{name}.bias"] = layer.bias.detach().numpy()
    return net, arrays


@pytest.mark.parametrize(
    ("file", "act", "prefix", "head", "out"),
    [
        ("sac-Some-v3", nn.ReLU, "actor.latent_pi", "actor.mu", torch.tanh),
        ("tqc-Some-v3", nn.ReLU, "actor.latent_pi", "actor.mu", torch.tanh),
        ("ppo-Some-v3", nn.ReLU, "mlp_extractor.policy_net", "action_net", lambda a: a.clip(-1, 1)),
        ("a2c-Some-v3", nn.Tanh, "mlp_extractor.policy_net", "action_net", lambda a: a.clip(-1, 1)),
        ("trpo-Some", nn.Tanh, "mlp_extractor.policy_net", "action_net", lambda a: a.clip(-1, 1)),
    ],
)
@pytest.mark.parametrize("normalised", [False, True])
def test_networks(tmp_path, file, act, prefix, head, out, normalised):
    net, arrays = network(act, prefix, head)
    state = np.array([3.0, -50.0, 0.5])
    seen = state
    if normalised:
        rms = {"obs_rms_mean": np.ones(3), "obs_rms_var": np.full(3, 4.0)}
        arrays |= rms | {"clip_obs": np.array(10.0), "epsilon": np.array(1e-8)}
        seen = np.clip((state - 1) / 2, -10, 10)
    np.savez(tmp_path / f"{file}.npz", **arrays)
    policy = load_policy(tmp_path / f"{file}.npz", sample=False)
    found = policy.act(state, np.random.default_rng(0))
    expected = out(net(torch.from_numpy(seen))).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_sampled_actions_have_the_deviation_of_the_file(tmp_path):
    arrays = {"action_net.weight": np.zeros((2, 3)), "log_std": np.log([0.1, 0.3])}
    np.savez(tmp_path / "ppo-x.npz", **arrays)
    policy = load_policy(tmp_path / "ppo-x.npz")
    rng = np.random.default_rng(0)
    drawn = np.array([policy.act(np.zeros(3), rng) for _ in range(4000)])
    np.testing.assert_allclose(drawn.std(0), [0.1, 0.3], rtol=0.05)


def test_a_linear_policy_and_its_diluted_form():
    rng = np.random.default_rng(0)
    policy = LinearPolicy(np.array([[1.0, 0.0]]))
    assert policy.act(np.array([0.3, 9.0]), rng) == pytest.approx([0.3])
    assert policy.act(np.array([7.0, 9.0]), rng) == pytest.approx([1.0])
    shares = []
    for _ in range(60):
        own = for_episode(Diluted(policy), rng)
        acts = [own.act(np.array([0.3, 9.0]), rng)[0] for _ in range(100)]
        shares.append(np.mean(np.array(acts) != 0.3))
    assert min(shares) < 0.2
    assert max(shares) > 0.8


def test_files_that_are_no_policies(tmp_path):
    with pytest.raises(DataError, match="does not exist; expected a policy file"):
        load_policy(tmp_path / "nothing.npz")
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(DataError, match="is not an npz file"):
        load_policy(tmp_path / "text.npz")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(DataError, match=r"has neither 'actor\.mu\.weight'"):
        load_policy(tmp_path / "other.npz")


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "least"), [("tqc", 2500), ("ppo", 1500), ("a2c", 300)])
def test_real_policies_walk(algorithm, least):
    path = REAL_DATA / "offline_rl" / "policies" / f"{algorithm}-Hopper-v3.npz"
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    pytest.importorskip("mujoco")
    played = record(get_environment("hopper"), [load_policy(path, sample=False)], range(3), 0)
    assert played.trajectories("hopper").returns.mean() > least
