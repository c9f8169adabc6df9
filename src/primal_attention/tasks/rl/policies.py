"""Policies that episodes are recorded with, in numpy.

A policy file is `<algorithm>-<anything>.npz` with the arrays of an actor network. The observation
is normalised first if there are `obs_rms_mean` and `obs_rms_var` (with `epsilon`, and clipped to
`clip_obs`). Then, by the arrays that there are,

    actor.latent_pi.<i>.*, actor.mu.*, actor.log_std.*    SAC, TQC: ReLU layers, tanh(mu + std * n)
    mlp_extractor.policy_net.<i>.*, action_net.*, log_std  PPO (ReLU), A2C and TRPO (tanh layers)
    action_net.weight                                      ARS: linear

each with `weight` (out, in) and `bias`. n is 0, or normal where a policy samples. Actions are cut
to [-1, 1]; whoever uses them scales them to the bounds of the environment.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ...runs.arrays import read_arrays
from ..base import DataError

Array = npt.NDArray[Any]
TANH_ALGORITHMS = ("a2c", "trpo")


class Policy(Protocol):
    def act(self, state: Array, rng: np.random.Generator) -> Array:
        """An action (action_dim,) in [-1, 1] in a state (state_dim,)."""


@dataclass(frozen=True)
class LinearPolicy:
    """clip(gain . state + noise * n)."""

    gain: Array  # (action_dim, state_dim)
    noise: float = 0.0

    def act(self, state: Array, rng: np.random.Generator) -> Array:
        wanted = self.gain @ state
        return _clip(wanted + self.noise * rng.standard_normal(len(wanted)))


@dataclass(frozen=True)
class Diluted:
    """A policy some of whose actions are replaced by random ones, a share that each episode draws
    anew from [0, 1]: from useless to as good as the policy, as in a replay buffer."""

    policy: Policy

    def act(self, state: Array, rng: np.random.Generator) -> Array:
        raise TypeError("the share of random actions is that of an episode; call episode(rng)")

    def episode(self, rng: np.random.Generator) -> Policy:
        """The policy of one episode."""
        return _Mixed(self.policy, float(rng.random()))


@dataclass(frozen=True)
class _Mixed:
    policy: Policy
    share: float

    def act(self, state: Array, rng: np.random.Generator) -> Array:
        action = self.policy.act(state, rng)
        random = rng.uniform(-1.0, 1.0, len(action))
        return random if rng.random() < self.share else action


@dataclass(frozen=True)
class ActorPolicy:
    """A policy from a file."""

    arrays: Mapping[str, Array]
    relu: bool
    sample: bool

    def act(self, state: Array, rng: np.random.Generator) -> Array:
        x = self._normalised(state)
        squashed = "actor.mu.weight" in self.arrays
        prefix = "actor.latent_pi" if squashed else "mlp_extractor.policy_net"
        for name in self._hidden(prefix):
            x = self._linear(name, x)
            x = np.maximum(x, 0.0) if self.relu else np.tanh(x)
        mean = self._linear("actor.mu" if squashed else "action_net", x)
        if self.sample:
            mean = mean + self._std(x, len(mean)) * rng.standard_normal(len(mean))
        action: Array = np.tanh(mean) if squashed else _clip(mean)
        return action

    def _normalised(self, state: Array) -> Array:
        a = self.arrays
        if "obs_rms_mean" not in a:
            return state
        limit = float(a.get("clip_obs", np.array(np.inf)))
        std = np.sqrt(a["obs_rms_var"] + float(a.get("epsilon", np.array(0.0))))
        normalised: Array = np.clip((state - a["obs_rms_mean"]) / std, -limit, limit)
        return normalised

    def _hidden(self, prefix: str) -> list[str]:
        pattern = re.compile(re.escape(prefix) + r"\.(\d+)\.weight")
        numbers = sorted(int(m[1]) for m in map(pattern.fullmatch, self.arrays) if m)
        return [f"{prefix}.{number}" for number in numbers]

    def _linear(self, name: str, x: Array) -> Array:
        out: Array = self.arrays[f"{name}.weight"] @ x
        bias = self.arrays.get(f"{name}.bias")
        return out if bias is None else out + bias

    def _std(self, x: Array, size: int) -> Array:
        if "actor.log_std.weight" in self.arrays:
            logs = np.clip(self._linear("actor.log_std", x), -20.0, 2.0)
        else:
            logs = self.arrays.get("log_std", np.full(size, -np.inf))
        std: Array = np.exp(logs)
        return std


def load_policy(path: Path | str, *, sample: bool = True) -> ActorPolicy:
    """The policy in a file; `sample` adds the noise that it was trained with, if it has any."""
    path = Path(path)
    try:
        arrays = read_arrays(path)
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist; expected a policy file") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not an npz file of arrays ({error})") from error
    if not {"actor.mu.weight", "action_net.weight"} & set(arrays):
        raise DataError(
            f"{path} has neither 'actor.mu.weight' nor 'action_net.weight'; expected an actor"
        )
    relu = path.name.partition("-")[0].lower() not in TANH_ALGORITHMS
    return ActorPolicy(arrays, relu, sample)


def for_episode(policy: Policy, rng: np.random.Generator) -> Policy:
    """The policy to play one episode with."""
    return policy.episode(rng) if isinstance(policy, Diluted) else policy


def _clip(action: Array) -> Array:
    clipped: Array = np.clip(action, -1.0, 1.0)
    return clipped


def digest(policies: Sequence[Policy]) -> str:
    """Twelve characters that tell policies apart by all their numbers."""
    hashed = hashlib.sha256()

    def add(value: Any) -> None:
        if dataclasses.is_dataclass(value):
            add(type(value).__name__)
            add({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
        elif isinstance(value, Mapping):
            for key in sorted(value):
                add(key)
                add(value[key])
        elif isinstance(value, np.ndarray):
            hashed.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
        else:
            hashed.update(repr(value).encode())

    for policy in policies:
        add(policy)
    return hashed.hexdigest()[:12]
