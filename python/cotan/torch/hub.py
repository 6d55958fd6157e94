"""torch.hub: models and weights that are on this machine. Nothing is downloaded: a file is read that is in the
cache already, or that a file:// address names."""
import importlib.util
import os
import re
import shutil
import sys
from urllib.parse import unquote, urlparse

from ..serialization import load as _load

try:
    from tqdm.auto import tqdm
except ImportError:
    class tqdm:
        """Shows nothing: the package that shows progress is not installed."""

        def __init__(self, iterable=None, *args, **options):
            self._items = iterable

        def __iter__(self):
            return iter(self._items or ())

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            pass

        update = close = set_description = lambda self, *args, **options: None

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_folder = [None]


def _get_torch_home():
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir():
    """Returns the folder of the cache."""
    return _folder[0] or os.path.join(_get_torch_home(), "hub")


def set_dir(d):
    _folder[0] = os.path.expanduser(d)


def download_url_to_file(url, dst, hash_prefix=None, progress=True):
    """Copies the file of a file:// address; others are refused."""
    parts = urlparse(url)
    if parts.scheme != "file":
        raise RuntimeError(f"download_url_to_file: {url}: nothing is downloaded\n  hint: put the file at {dst}")
    shutil.copyfile(unquote(parts.path), dst)


def load_state_dict_from_url(url, model_dir=None, map_location=None, progress=True, check_hash=False, file_name=None,
                             weights_only=False):
    """Loads the file of the cache that has the address's name (or file_name)."""
    path = os.path.join(model_dir or os.path.join(get_dir(), "checkpoints"), file_name or os.path.basename(urlparse(url).path))
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        download_url_to_file(url, path)
    return _load(path, map_location=map_location)


def _entries(repo_or_dir, source):
    path = os.path.join(os.path.expanduser(repo_or_dir), "hubconf.py")
    if source != "local" and not os.path.exists(path):
        raise RuntimeError(f"hub: {repo_or_dir}: nothing is downloaded\n"
                           "  hint: load(FOLDER, MODEL, source=\"local\") of a copy on this machine")
    sys.path.insert(0, os.path.dirname(path))
    try:
        spec = importlib.util.spec_from_file_location("hubconf", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(os.path.dirname(path))
    return module


def list(github, force_reload=False, skip_validation=False, trust_repo=None, verbose=True, source="github"):
    """Returns the names of the functions in a folder's hubconf.py."""
    module = _entries(github, source)
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]


def help(github, model, source="github", **options):
    return getattr(_entries(github, source), model).__doc__


def load(repo_or_dir, model, *args, source="github", trust_repo=None, force_reload=False, verbose=True, skip_validation=False,
         **options):
    """Calls a function of a folder's hubconf.py."""
    return getattr(_entries(repo_or_dir, source), model)(*args, **options)
