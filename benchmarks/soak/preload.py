"""What the server of forks imports: everything that a run needs; it never computes."""

import lightning_fabric  # noqa: F401

import primal_attention.train
import primal_attention.train.session  # noqa: F401

from . import tiny  # noqa: F401
