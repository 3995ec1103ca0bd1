"""Model files of earlier versions stay loadable, and label as they did.

format-1.model was trained on the two sentences of conftest.py, with an elastic net, a begin label, a constraint,
macros and ambiguous texts; format-1.txt is what `crftool tag -v 2` made of them. Neither may be made anew: a change
of the format needs a new number and files of its own.
"""

import os
from pathlib import Path

import pytest
from conftest import TWO_SENTENCES

import crftool
from crftool.errors import ModelError
from crftool.model.mapped import MappedModel
from crftool.stream import Request, tag_stream

FOLDER = Path(__file__).parent
MODEL = FOLDER / "format-1.model"


def test_a_model_of_the_first_format_labels_as_it_did(tmp_path):
    (tmp_path / "text").write_bytes(TWO_SENTENCES)
    mapped = MappedModel.load(str(MODEL))
    out = b"".join(tag_stream(mapped, [str(tmp_path / "text")], Request(level=2, allowed=mapped.allowed_pairs())))
    assert out == (FOLDER / "format-1.txt").read_bytes()
    assert MODEL.stat().st_size == 7424


def test_it_works_from_python_too():
    model = crftool.Model.load(MODEL)
    assert model.tag([[("He", "PRP"), ("reckons", "VBZ")]]) == [["B-NP", "B-VP"]]
    assert model.to_bytes() == MODEL.read_bytes()


def test_cut_short_anywhere_it_is_refused(tmp_path):
    """Every length, as a file that is mapped."""
    path = tmp_path / "m"
    path.write_bytes(MODEL.read_bytes())
    for length in range(MODEL.stat().st_size - 1, -1, -1):
        os.truncate(path, length)
        with pytest.raises(ModelError):
            MappedModel.load(str(path))


@pytest.mark.parametrize("data", [b"\x7fELF" + bytes(5000), b"\x1f\x8b" + bytes(100), b"version: 100\n", b"lCRF" + bytes(64), b"#mdl#2#",
                                  b"crftool\x1a", b"crftool\x1a" + b"\xff" * 5000, bytes(7424), b"PK\3\4" + bytes(64)])
def test_foreign_files(tmp_path, data):
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(ModelError):
        MappedModel.load(str(tmp_path / "m"))
