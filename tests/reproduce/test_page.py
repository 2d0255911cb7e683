import re

import pytest

from noisycgd.comparison import Comparison, Curve
from reproduce import page as module
from reproduce.accounts import COMPARISONS


@pytest.fixture
def shown(experiment, monkeypatch):
    """A page of two experiments, one with runs and one without."""
    comparison = Comparison("title", "x", "y", (Curve("one", (1.0, 2.0), (0.5, 0.25), "final-model"),))
    monkeypatch.setitem(COMPARISONS, "shuffling", lambda **settings: comparison)
    load = module.load_experiment
    monkeypatch.setattr(module, "names", lambda: ["figure-shuffling", "tiny"])
    monkeypatch.setattr(module, "ORDER", ("tiny", "figure-shuffling"))
    monkeypatch.setattr(module, "load_experiment", lambda name: experiment if name == "tiny" else load(name))


def test_the_order_names_every_config():
    assert sorted(module.ORDER) == module.names()


def test_a_config_that_the_order_lacks_is_refused(shown, store, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ORDER", ("tiny",))
    with pytest.raises(ValueError, match="must name every config; differs in figure-shuffling"):
        module.page(store, tmp_path / "page.md")


def test_a_page_has_every_section_and_its_pictures(shown, store, tmp_path):
    target = tmp_path / "docs" / "page.md"
    written = module.page(store, target)
    text = target.read_text()
    headings = re.findall(r"^(#+) ", text, flags=re.MULTILINE)
    # One title, a section per experiment, and the data sets of a table below it.
    assert headings.count("#") == 1
    assert headings.count("##") >= 2
    assert text.index("## A tiny table") < text.index("## One shuffled epoch")
    # Every section is in the contents; GitHub names a heading so.
    assert "(#a-tiny-table)" in text
    assert "(#one-shuffled-epoch-against-the-gaussian-mechanism)" in text
    assert "{contents}" not in text
    for link in re.findall(r"!\[.*\]\((.*)\)", text):
        assert (target.parent / link).is_file()
    assert {path.name for path in written} == {"page.md", "figure-shuffling.png"}


def test_an_anchor_loses_its_punctuation_as_on_github():
    one = module.load_experiment("figure-epsilon-epochs")
    assert module.contents([one]) == (
        "- [Epsilon against epochs for several values of eta * l2]"
        "(#epsilon-against-epochs-for-several-values-of-eta--l2): Figure 1"
    )
