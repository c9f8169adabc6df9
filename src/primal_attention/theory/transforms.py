"""Whether calls are being transformed: hand-written passes leave them to torch's operations."""

import torch
from torch.autograd import forward_ad


def is_transformed() -> bool:
    """Within vmap, grad or jvp of torch.func, or within a level of torch.autograd.forward_ad."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
