"""Put first on PYTHONPATH of every process a test starts: installs the network guard before any other code runs."""

import importlib.util
import os
import sys
from pathlib import Path


def _install() -> None:
    name = "frontdesk_tests_network_guard"
    path = Path(__file__).resolve().parent.parent / "network_guard.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    module.install()


try:
    _install()
except BaseException as error:  # noqa: BLE001 - Python would carry on without the guard
    sys.stderr.write(f"network guard could not be installed: {error!r}\n")
    sys.stderr.flush()
    os._exit(97)
