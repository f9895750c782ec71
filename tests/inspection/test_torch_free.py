import subprocess
import sys

from tests.readers.sample_files import sample_file

INSPECT = """
import sys
for name in ("torch", "torchvision"):
    sys.modules[name] = None  # importing it is an ImportError from here on
from pathlib import Path
from qtool.inspection.inspect import inspect_file
from qtool.workflows.compare import compare
from qtool.report.forms import Form, written
from qtool.report.plan_table import render_plan
from qtool.stamp.plan_json import plan_from_json
report = inspect_file(Path(sys.argv[1]), backend="qnnpack")
sys.stdout.write(written(report, Form.TEXT))
comparison = compare(sys.argv[1], Path(sys.argv[1]).read_bytes())
for form in Form:
    written(report, form)
    written(comparison, form)
slow = {"torch", "torchvision", "numpy", "pydantic", "yaml"}
loaded = slow & {name.partition(".")[0] for name, module in sys.modules.items() if module}
assert not loaded, loaded
"""


def test_case_02_inspect_needs_no_engine(tmp_path):
    path = tmp_path / "int8.pt2"
    path.write_bytes(sample_file())
    command = [sys.executable, "-W", "error", "-c", INSPECT, path]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "error QT301 Made for another backend" in result.stdout
    assert "qnnpack" in result.stdout
