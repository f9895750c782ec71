import sys
import textwrap

import pytest

from qtool.config.schema import InputConfig, PythonSource, SelectConfig
from qtool.data.python_source import UserSequence, UserStream, open_python
from qtool.errors import DataError

X = (InputConfig(name="x", shape=("batch", 2)),)
XY = (*X, InputConfig(name="y", shape=("batch", 3)))


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Write a module into the current folder, open one of its attributes as a data source."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)

    def opened(code, *, inputs=X, attribute="data", **settings):
        (tmp_path / "mine.py").write_text("import torch\n" + textwrap.dedent(code))
        return open_python(PythonSource(kind="python", factory=f"mine:{attribute}", **settings), inputs)

    yield opened
    sys.modules.pop("mine", None)


def everything(samples):
    items = samples if isinstance(samples, UserStream) else map(samples.__getitem__, range(len(samples)))
    return [([t.tolist() for t in s.inputs], s.label) for s in items]


def test_a_list_of_samples_is_fetched_by_index(mine):
    samples = mine("def data(): return [(torch.full((2,), float(i)), i) for i in range(3)]")
    assert isinstance(samples, UserSequence)
    assert everything(samples) == [([[float(i)] * 2], i) for i in range(3)]


def test_a_tensor_of_samples_and_a_torch_dataset_are_too(mine):
    assert everything(mine("def data(): return torch.eye(2)")) == [([[1, 0]], None), ([[0, 1]], None)]
    del sys.modules["mine"]
    code = "def data(): return torch.utils.data.TensorDataset(torch.eye(2), torch.tensor([7, 8]))"
    assert everything(mine(code)) == [([[1, 0]], 7), ([[0, 1]], 8)]


def test_a_generator_is_read_again_on_every_pass(mine):
    samples = mine(
        """
        def data(scale):
            for i in range(3):
                yield torch.full((2,), scale * i)
        """,
        kwargs={"scale": 2.0},
    )
    assert isinstance(samples, UserStream)
    assert len(samples) == 3
    assert everything(samples) == everything(samples) == [([[2.0 * i] * 2], None) for i in range(3)]


def test_an_endless_stream_ends_at_its_limit(mine):
    samples = mine(
        """
        def data():
            while True:
                yield torch.zeros(5, 2), torch.arange(5)
        """,
        limit=7,
    )
    assert [label for _, label in everything(samples)] == [0, 1, 2, 3, 4, 0, 1]
    assert len(samples) == 7


def test_a_data_loader_gives_batches_that_are_taken_apart(mine):
    samples = mine(
        """
        def data():
            pairs = torch.utils.data.TensorDataset(torch.arange(10.0).reshape(5, 2), torch.arange(5))
            return torch.utils.data.DataLoader(pairs, batch_size=2)
        """
    )
    assert everything(samples) == [([[2.0 * i, 2.0 * i + 1]], i) for i in range(5)]
    assert len(samples) == 5


def test_a_list_of_batches_is_a_stream(mine):
    samples = mine("def data(): return [torch.zeros(4, 2), torch.ones(1, 2)]")
    assert isinstance(samples, UserStream)
    assert len(samples) == 5


def test_items_hold_one_tensor_for_each_input(mine):
    expected = [([[0.0, 0.0], [1.0, 1.0, 1.0]], 4)]
    for item in ("((torch.zeros(2), torch.ones(3)), 4)", "[[torch.zeros(2), torch.ones(3)], torch.tensor(4)]"):
        assert everything(mine(f"def data(): return [{item}]", inputs=XY)) == expected
        del sys.modules["mine"]
    assert everything(mine("def data(): return [(torch.zeros(2), torch.ones(3))]", inputs=XY))[0][1] is None


def test_tensors_that_need_a_gradient_are_taken_without_it(mine):
    assert not mine("def data(): return [torch.zeros(2, requires_grad=True)]")[0].inputs[0].requires_grad


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("dota = 1", "'mine' has no attribute 'data'; did you mean 'dota'"),
        ("data = 3", "mine:data: is of type int, which cannot be called"),
        ("import nowhere", "importing mine raised ModuleNotFoundError: No module named 'nowhere'.*your code"),
        ("1 / 0", "importing mine raised ZeroDivisionError"),
        ("def data(:", "importing mine raised SyntaxError"),
        ("raise SystemExit(0)", "importing mine raised SystemExit"),
        ("def data(a): pass", "calling it raised TypeError: .*missing 1 required"),
        ("def data(): return None", "returned NoneType: return a list"),
        ("def data(): return {'x': 1}", "returned dict: return a list"),
        ("def data(): return []", "returned an empty list"),
        ("def data(): return [torch.zeros(2, 2, 2)]", r"item 0 has shape \(2, 2, 2\), but model input 'x' is"),
        ("def data(): return [3]", "item 0 is of type int: it must be a tensor, or a pair"),
        ("def data(): return [(1, 2, 3)]", r"item 0 is a tuple of 3 \(int, int, int\)"),
        ("def data(): return [(torch.zeros(2), 1.5)][0:]", None),
    ],
)
def test_what_cannot_be_opened_names_the_users_code(mine, code, message):
    if message is None:
        message, samples = "item 0 has the label 1.5: a label must be a class index", mine(code)
        with pytest.raises(DataError, match=message):
            samples[0]
        return
    with pytest.raises(DataError, match=message):
        mine(code)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("yield torch.zeros(2); 1 / 0", "mine:data: item 1 raised ZeroDivisionError: division by zero"),
        (
            "yield torch.zeros(3, 2), 1",
            "item 0 is a batch, and its label is of type int: give one class index for each sample",
        ),
        ("yield torch.zeros(3, 2), [1, 2]", r"item 0 is a batch of shape \(3, 2\) and 2 labels"),
        ("yield torch.zeros(3, 2), torch.tensor([1, 2, -1])", r"item 0\[2\] has the label -1"),
        ("yield torch.zeros(2), True", "item 0 has the label True"),
        ("yield torch.zeros(2), torch.zeros(1)", r"item 0 has the label tensor\(\[0\.\]\)"),
    ],
)
def test_what_a_stream_gives_is_checked(mine, code, message):
    samples = mine(f"def data():\n    {code}")
    with pytest.raises(DataError, match=message):
        list(samples)


def test_a_batch_among_samples_is_refused(mine):
    samples = mine("def data(): return [torch.zeros(2), torch.zeros(3, 2)]")
    with pytest.raises(DataError, match="item 1 is a batch, but item 0 is one sample"):
        samples[1]


def test_batches_of_inputs_that_differ_in_number_are_refused(mine):
    samples = mine("def data(): yield torch.zeros(4, 2), torch.zeros(5, 3)", inputs=XY)
    with pytest.raises(DataError, match=r"item 0 is a batch of shape \(4, 2\), \(5, 3\)"):
        list(samples)


def test_a_module_that_is_not_there_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = PythonSource(kind="python", factory="no_such_package.part:data")
    with pytest.raises(DataError, match=rf"no module 'no_such_package', neither installed nor in {tmp_path}"):
        open_python(source, X)


def test_select_needs_samples(mine):
    select = SelectConfig(count=1)
    with pytest.raises(DataError, match="select needs a list or Dataset of samples, and this is a generator"):
        mine("def data(): yield torch.zeros(2)", select=select)


def test_without_a_model_samples_and_batches_look_alike(mine):
    with pytest.raises(DataError, match=r"needs model\.inputs"):
        mine("def data(): return [torch.zeros(2)]", inputs=())


def test_the_current_folder_is_importable_only_while_user_code_runs(mine, tmp_path):
    (tmp_path / "beside.py").write_text("size = 2")
    samples = mine("def data():\n    import beside\n    yield torch.zeros(beside.size)")
    assert len(list(samples)) == 1
    assert str(tmp_path) not in sys.path
    del sys.modules["beside"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("torch.ones(3, 2).to_sparse()", "sparse_coo"),
        ("torch.ones(3, 2, device='meta')", "meta"),
    ],
)
def test_tensors_without_values_of_their_own_are_refused(mine, code, kind):
    with pytest.raises(DataError, match=f"mine:data item 0 is a {kind} tensor: give a dense tensor of values"):
        everything(mine(f"def data(): yield {code}"))
