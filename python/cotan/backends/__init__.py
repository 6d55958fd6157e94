"""Libraries of GPUs that programs ask about and set options of: none is here."""
from . import cuda, cudnn, mps  # noqa: F401
