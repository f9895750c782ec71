"""Many threads on one model, and on two models of different engines: equal to one after the other, bit for bit."""

import threading
from itertools import cycle

import pytest
import torch
from torch import nn

import qtool
from qtool.runtime.store import to_bytes
from tests.patterns import bn2d, conv


@pytest.fixture(scope="module")
def file():
    torch.manual_seed(0)
    model = nn.Sequential(
        conv(3, 8, padding=1), bn2d(8), nn.ReLU6(), conv(8, 8, groups=8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8 * 7 * 7, 5),
    ).eval()  # fmt: skip
    x = torch.randn(2, 3, 16, 16)
    prepared = qtool.prepare(model, x, {"target": {"backend": "fbgemm"}})
    qtool.calibrate(prepared, [x])
    return to_bytes(qtool.convert(prepared))


class Watcher:
    """A thread that looks at torch's global engine all the time, and keeps what it was."""

    def __enter__(self):
        self.seen, self._done = set(), threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()

    def _watch(self):
        while not self._done.is_set():
            self.seen.add(torch.backends.quantized.engine)
            self._done.wait(0.0005)


def run_in_threads(models, num_threads, num_runs):
    """Return the runs that differ from the serial ones, and the global engines seen meanwhile."""
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(size, 3, 16, 16, generator=generator) for size in (1, 2, 3, 5)]
    serial = [[model(x) for x in inputs] for model in models]
    wrong, gate = [], threading.Barrier(num_threads)

    def work(which):
        gate.wait()
        for run in range(num_runs):
            index = run % len(inputs)
            if not torch.equal(models[which](inputs[index]), serial[which][index]):
                wrong.append((which, run))

    turns = cycle(range(len(models)))
    threads = [threading.Thread(target=work, args=(next(turns),)) for _ in range(num_threads)]
    with Watcher() as watcher:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return wrong, watcher.seen


MODELS = [("fbgemm",), ("qnnpack",), ("fbgemm", "qnnpack"), ("onednn", "qnnpack")]
SIZES = [(4, 25), pytest.param(16, 200, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("num_threads", "num_runs"), SIZES)
@pytest.mark.parametrize(
    "engines", [("fbgemm",), ("qnnpack",), ("fbgemm", "qnnpack"), ("onednn", "qnnpack")], ids="+".join
)
def test_threads_give_what_one_after_the_other_gives(file, engines, num_threads, num_runs):
    before = torch.backends.quantized.engine
    models = [qtool.load(file, engine=engine) for engine in engines]
    assert run_in_threads(models, num_threads, num_runs) == ([], {before})


def test_loading_in_threads_packs_each_model_for_its_engine_and_sets_the_global_one_back(file):
    """While a model is packed the global engine is another, under a lock; afterwards it is as before."""
    before, x = torch.backends.quantized.engine, torch.randn(2, 3, 16, 16)
    engines = ("fbgemm", "qnnpack", "onednn") * 2
    expected = {engine: qtool.load(file, engine=engine)(x) for engine in engines}
    found = {}

    def work(index, engine):
        found[index] = (engine, qtool.load(file, engine=engine)(x))

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(engines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(engines)
    assert all(torch.equal(y, expected[engine]) for engine, y in found.values())
    assert torch.backends.quantized.engine == before
