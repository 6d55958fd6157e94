"""The older path of torch.hub's functions."""
from ..torch.hub import load_state_dict_from_url as load_url  # noqa: F401
from ..torch.hub import tqdm  # noqa: F401
