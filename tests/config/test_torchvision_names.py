from __future__ import annotations

import subprocess
import sys

from qtool.config.torchvision_names import torchvision_models


def test_they_are_those_that_torchvision_itself_lists():
    code = "from torchvision import models; print(*models.list_models(module=models))"
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert list(torchvision_models()) == sorted(listed)
    assert len(listed) > 50
