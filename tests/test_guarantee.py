from noisycgd import Guarantee
from noisycgd.guarantee import weakened, with_assumed_public
from noisycgd.types import Status


def test_a_reason_never_raises_the_worth_and_stands_once(stated):
    _, g = stated()
    conditional = weakened(g, Status.CONDITIONAL, "one")
    assert (conditional.status, conditional.reasons) == (Status.CONDITIONAL, ("one",))
    assert weakened(conditional, Status.CONDITIONAL, "one") == conditional
    same = weakened(conditional, Status.VOID, "one")
    assert (same.status, same.reasons) == (Status.VOID, ("one",))
    void = weakened(conditional, Status.VOID, "two")
    assert (void.status, void.reasons) == (Status.VOID, ("one", "two"))
    assert weakened(void, Status.UNPROVEN, "three").status is Status.VOID


def test_facts_are_listed_in_order_and_inferred_ones_make_it_conditional(stated):
    _, g = stated()
    listed = with_assumed_public(g, ("labels",))
    assert (listed.status, listed.assumed_public) == (Status.PROVED, ("labels",))
    inferred = with_assumed_public(listed, ("columns",), ("bounds",))
    assert (inferred.status, inferred.assumed_public) == (Status.CONDITIONAL, ("labels", "columns", "bounds"))
    assert with_assumed_public(inferred, (), ("more",)).reasons == inferred.reasons


def test_plain_values_give_it_back(stated, selected, saved):
    for g in (stated()[1], selected(n_scored=9)):
        assert Guarantee.from_dict(saved(g)) == g
    assert "selection" not in stated()[1].to_dict()
