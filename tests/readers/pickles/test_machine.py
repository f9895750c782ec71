import collections
import copyreg
import math
import os
import pickle
import pickletools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtool.errors import FileFormatError
from qtool.readers.pickles.machine import MAX_OPCODES, read_pickle
from qtool.readers.pickles.opcodes import STEPS
from qtool.readers.pickles.values import Bytes, Call, Instance, Name, Reference

OPCODES = st.sampled_from([opcode.code.encode("latin-1") for opcode in pickletools.opcodes])
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers(-5, 5) | st.tuples(st.text(), st.booleans()), inner, max_size=4)
    ),
    max_leaves=20,
)


def read(data, start=0):
    return read_pickle(data, where="a.pt", entry="data.pkl", start=start)


def error_of(data):
    with pytest.raises(
        FileFormatError, match=r"^a\.pt: entry 'data\.pkl' in it is no pickle that can be read: "
    ) as info:
        read(data)
    return str(info.value)


class Module:
    def __init__(self):
        self.weight = [1]
        self.itself = self


class Calls:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


class Listed(list):
    pass


class Mapped(dict):
    pass


class Keywords:
    def __new__(cls, *, size):
        made = super().__new__(cls)
        made.size = size
        return made

    def __getnewargs_ex__(self):
        return (), {"size": self.size}


@pytest.mark.parametrize("protocol", range(6))
@given(value=PLAIN)
def test_plain_values_are_what_python_reads(protocol, value):
    data = pickle.dumps(value, protocol)
    found = read(data)
    assert found.value == pickle.loads(data)
    assert repr(found.value) == repr(pickle.loads(data))
    assert found.risks == ()
    assert found.end == len(data)


def test_every_opcode_has_a_step():
    known = {opcode.code for opcode in pickletools.opcodes} - {"."}
    assert {chr(code) for code, step in enumerate(STEPS) if step is not None} == known


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"I01\n.", True),
        (b"I00\n.", False),
        (b"I-7\n.", -7),
        (b"L12345678901234567890L\n.", 12345678901234567890),
        (b"F2.5\n.", 2.5),
        (b"S'two words'\n.", "two words"),
        (b"Vtext\n.", "text"),
        (b"U\x02ab.", "ab"),
        (b"T\x02\0\0\0ab.", "ab"),
        (b"J\xff\xff\xff\xff.", -1),
        (b"K\xff.", 255),
        (b"M\xff\xff.", 65535),
        (b"\x8a\x01\xff.", -1),
        (b"\x8b\x01\0\0\0\x7f.", 127),
        (b"G\x40\x04\0\0\0\0\0\0.", 2.5),
        (b"\x8c\x01a.", "a"),
        (b"X\x01\0\0\0a.", "a"),
        (b"\x8d\x01\0\0\0\0\0\0\0a.", "a"),
        (b"(K\x01K\x02l.", [1, 2]),
        (b"(K\x01K\x02d.", {1: 2}),
        (b"(K\x01K\x02t.", (1, 2)),
        (b"K\x01K\x02\x86.", (1, 2)),
        (b"K\x01K\x02K\x03\x87.", (1, 2, 3)),
        (b"(K\x01\x91.", (1,)),
        (b"\x8f(K\x01\x90.", [1]),
        (b"](K\x01K\x02e.", [1, 2]),
        (b"]K\x01a.", [1]),
        (b"}K\x01K\x02s.", {1: 2}),
        (b"}(K\x01K\x02u.", {1: 2}),
        (b"K\x01K\x020.", 1),
        (b"K\x01(K\x021.", 1),
        (b"K\x01(0.", 1),
        (b"K\x012\x86.", (1, 1)),
        (b"]p5\n0g5\n.", []),
        (b"]q\x05h\x05\x86.", ([], [])),
        (b"]r\0\0\1\0j\0\0\1\0\x86.", ([], [])),
        (b"]\x94h\0\x86.", ([], [])),
        (b"\x80\x04\x95\x02\0\0\0\0\0\0\0N.", None),
    ],
)
def test_an_opcode(data, value):
    assert read(data).value == value
    assert type(read(data).value) is type(pickle.loads(data)) or isinstance(pickle.loads(data), set | frozenset)


def test_names_persistent_ids_and_extensions_are_records():
    name, stacked, known, line, extension = read(
        b"(cos\nsystem\n\x8c\x02os\x8c\x06system\x93K\x07QP8\n\x82\x05t."
    ).value
    assert name is stacked
    assert name == Name("os", "system")
    assert isinstance(known, Reference)
    assert (known.id, line.id) == (7, "8")
    assert str(extension) == "copyreg._extension_registry[5]"


@pytest.mark.parametrize(
    "data", [b"C\x02ab.", b"B\x02\0\0\0ab.", b"\x8e\x02\0\0\0\0\0\0\0ab.", b"\x96\x02\0\0\0\0\0\0\0ab."]
)
def test_bytes_stay_where_they_are(data):
    found = read(b"N" + data, start=1).value
    assert isinstance(found, Bytes)
    assert (b"N" + data)[found.offset :][: found.num_bytes] == b"ab"


@pytest.mark.parametrize("protocol", range(6))
def test_an_object_is_a_record_with_its_attributes_and_keeps_its_cycles(protocol):
    found = read(pickle.dumps(Module(), protocol))
    module = found.value
    assert isinstance(module, Instance)
    assert module.name == f"{__name__}.Module"
    assert module.attributes["weight"] == [1]
    assert module.attributes["itself"] is module
    assert f"{__name__}.Module" in [risk.detail for risk in found.risks]


@pytest.mark.parametrize("protocol", range(6))
def test_what_is_shared_is_shared(protocol):
    shared, cyclic = [1], []
    cyclic.append((cyclic, {"all": cyclic}))
    first, second, again = read(pickle.dumps([shared, shared, cyclic], protocol)).value
    assert first is second
    assert again[0][0] is again
    assert again[0][1]["all"] is again


@pytest.mark.parametrize("protocol", range(2, 6))
def test_objects_that_are_lists_or_dicts_or_have_keywords(protocol):
    listed, mapped, keywords = read(pickle.dumps([Listed([1, 2]), Mapped(a=1), Keywords(size=3)], protocol)).value
    assert listed.items == [1, 2]
    assert mapped.entries == {"a": 1}
    assert keywords.state == {"size": 3}


@pytest.mark.parametrize("protocol", range(6))
def test_ordered_dicts_counters_and_sets_are_plain(protocol):
    value = [collections.OrderedDict(b=1, a=2), collections.Counter("aab"), {1}, frozenset({2}), 1j]
    value.append(collections.defaultdict(list, x=[1]))
    ordered, counted, some, frozen, number, default = read(pickle.dumps(value, protocol)).value
    assert list(ordered.items()) == [("b", 1), ("a", 2)]
    assert counted == {"a": 2, "b": 1}
    assert (some, frozen) == ([1], (2,))
    assert (number.name, number.arguments) == ("builtins.complex", (0.0, 1.0))
    assert default == {"x": [1]}
    assert read(pickle.dumps(value, protocol)).risks == ()


def test_an_ordered_dict_of_python_2_and_its_attributes():
    data = b"ccollections\nOrderedDict\n(((S'a'\nK\x01lltR}S'_metadata'\nK\x05sb."
    found = read(data).value
    assert found == {"a": 1}
    assert found.state == {"_metadata": 5}


@pytest.mark.parametrize("protocol", range(6))
def test_a_call_is_named_and_not_made(protocol, tmp_path):
    marker = tmp_path / "made"
    found = read(pickle.dumps({"a": [Calls(marker)]}, protocol))
    call = found.value["a"][0]
    assert isinstance(call, Call)
    assert (call.name, call.arguments) == ("posix.mkdir", (str(marker),))
    assert [(risk.kind, risk.entry, risk.detail) for risk in found.risks] == [
        ("pickle_call", "data.pkl", "posix.mkdir")
    ]
    assert not marker.exists()


def test_a_chain_of_calls_ends_in_its_first_name():
    """getattr(__import__('os'), 'system')('ls'), as attacks write it, in names of Python 2."""
    data = b"c__builtin__\ngetattr\n(c__builtin__\n__import__\n(S'os'\ntRS'system'\ntR(S'ls'\ntR."
    found = read(data)
    outer = found.value
    assert outer.arguments == ("ls",)
    assert outer.name == ""
    assert outer.function.name == "builtins.getattr"
    assert outer.function.arguments[0].name == "builtins.__import__"
    assert [risk.detail for risk in found.risks] == ["builtins.getattr", "builtins.__import__"]


def test_many_names_are_counted():
    data = b"(" + b"".join(b"ca\nb%d\n" % number for number in range(300)) + b"t."
    risks = read(data).risks
    assert len(risks) == 201
    assert risks[-1].detail == "and 100 names more"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it ends too soon"),
        (b"N", "it ends too soon"),
        (b".", "the stack is empty"),
        (b"\xff.", "0xff is no opcode"),
        (b"\x80\x06N.", "protocol 6; the highest known is 5"),
        (b"X\x05\0\0\0ab.", "it ends within 5 bytes"),
        (b"X\xff\xff\xff\x7fab.", "a text of 2147483647 bytes"),
        (b"\x8e\xff\xff\xff\xff\xff\xff\xff\xffab.", "it ends within"),
        (b"\x8b\xff\xff\xff\x7f1.", "an integer of 2147483647 bytes"),
        (b"I" + b"1" * 5000 + b"\n.", "an integer of 5000 digits"),
        (b"Iabc\n.", "invalid literal"),
        (b"Fabc\n.", "could not convert"),
        (b"Sabc\n.", "a text without its quotes"),
        (b"Vabc", "a line without an end"),
        (b"t.", "a mark is missing"),
        (b"K\x01\x86.", "the stack is empty"),
        (b"K\x01(\x85.", "the stack is empty"),
        (b"h\x05.", "value number 5 was not kept"),
        (b"g5\n.", "value number 5 was not kept"),
        (b"Np-1\n.", "number -1"),
        (b"K\x01K\x02K\x03s.", "keys and values for a int"),
        (b"}(K\x01u.", "a key without a value"),
        (b"}]K\x03s.", "a list as key"),
        (b"}]\x85K\x03s.", "a tuple as key"),
        (b"K\x01K\x02a.", "items for a int"),
        (b"K\x01K\x02\x93.", "is no text"),
        (b"cos\nsystem\nK\x01R.", "arguments that are a int"),
        (b"cos\nsystem\n]\x81.", "arguments that are a list"),
        (b"(o.", "an object without a class"),
        (b"}}b.", "attributes for a dict"),
        (b"ca\nb\n)\x81}b}b.", "twice"),
        (b"\x97.", "out of band"),
        (b"X\x02\0\0\0\xffa.", "can't decode"),
        (b"\x80\x04\x95\xff\0\0\0\0\0\0\0N.", "a frame that reaches to byte 266, of 13"),
        (b"(" * (MAX_OPCODES + 1), "more than 1000000 opcodes"),
        (b"}(" + b"".join(b"F%d\nN" % number for number in range(1100)) + b"u.", "more than 1024 keys"),
        (b"(" + b"".join(b"ca\nb%d\n" % number for number in range(10_001)) + b"t.", "more than 10000 classes"),
    ],
)  # fmt: skip
def test_a_damaged_one_says_what_is_wrong(data, words):
    assert words in error_of(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"N" + b"\x85" * 999_000 + b".", id="tuples"),
        pytest.param(b"}" + b"K\x01}" * 300_000 + b"s" * 300_000 + b".", id="dicts"),
        pytest.param(b"]" * 400_000 + b"a" * 399_999 + b".", id="lists", marks=pytest.mark.slow),
        pytest.param(b"cos\nsystem\n" + b"2)R\x85R" * 190_000 + b".", id="calls", marks=pytest.mark.slow),
        pytest.param(b"(" + b"cos\nsystem\n" * 990_000 + b"t.", id="names", marks=pytest.mark.slow),
        pytest.param(b"}" + b"N" + b"\x85" * 900_000 + b"K\x01s.", id="key", marks=pytest.mark.slow),
        pytest.param(b"cos\nsystem\n)R" + b"Na" * 400_000 + b".", id="items", marks=pytest.mark.slow),
    ],
)
def test_a_million_opcodes_nested_as_deep_as_they_go_take_less_than_two_seconds(data):
    start = time.process_time()
    try:
        read(data)
    except FileFormatError as error:
        assert "a tuple as key" in str(error)  # noqa: PT017
    assert time.process_time() - start < 2


def test_pickles_one_after_the_other():
    data = pickle.dumps(1, 2) + pickle.dumps("two", 2)
    first = read(data)
    assert first.value == 1
    assert read(data, first.end).value == "two"


def test_numbers_that_are_none():
    assert math.isnan(read(pickle.dumps(math.nan)).value)
    assert read(pickle.dumps(-math.inf, 0)).value == -math.inf


def test_text_of_python_2_that_is_no_utf_8_stands_as_escapes():
    assert read(b"U\x02\xffa.").value == "\\xffa"


def test_half_of_a_surrogate_pair_stands_as_an_escape():
    assert read(pickle.dumps("\ud800")).value == "\\ud800"


@given(st.lists(OPCODES | st.binary(max_size=4)).map(b"".join))
def test_any_bytes_end_in_a_value_or_an_error(data):
    for start in (data, b"\x80\x02" + data, b"(((]}cos\nsystem\n" + data + b"."):
        try:
            read(start)
        except FileFormatError:
            continue


def test_the_extension_registry_is_not_looked_up():
    copyreg.add_extension("posix", "mkdir", 7)
    try:
        assert read(b"\x82\x07.").risks[0].detail == "copyreg._extension_registry[7]"
    finally:
        copyreg.remove_extension("posix", "mkdir", 7)
