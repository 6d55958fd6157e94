"""Mixed precision, as in torch.amp: products in 16 bits, values that may be large in float32, and loss
scaling for float16."""
from .autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from .grad_scaler import GradScaler
from .policy import Policy, get_policy

__all__ = ["GradScaler", "Policy", "autocast", "custom_bwd", "custom_fwd", "get_policy", "is_autocast_available"]
