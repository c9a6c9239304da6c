import pytest

from mxcluster.errors import BadInput, did_you_mean, for_each, refuse


def test_refuse_raises_all_problems_at_once():
    refuse([])
    with pytest.raises(BadInput, match="^one\ntwo$"):
        refuse(line for line in ("one", "two"))


def test_a_message_is_printable_and_limited():
    assert str(BadInput("a \x1b[31mred\rline\nnext\u2028")) == "a \\x1b[31mred\\rline\nnext\\u2028"
    assert len(str(BadInput("x" * 10**6))) < 3000
    many = str(BadInput("\n".join("problem %d" % number for number in range(1000)))).split("\n")
    assert len(many) == 101 and many[-1] == "... and 900 more"


def test_for_each_collects_refusals_without_repetition():
    def even(number):
        if number % 2:
            raise BadInput("%d is odd" % number)
        return number // 2

    assert for_each(even, [2, 4]) == [1, 2]
    with pytest.raises(BadInput, match="^1 is odd\n3 is odd$"):
        for_each(even, [1, 2, 3, 1])


def test_did_you_mean():
    assert did_you_mean("DIST_GSYNCH", ["dist_gsync", "local"]) == " (did you mean 'dist_gsync'?)"
    assert did_you_mean("whatever", ["dist_gsync", "local"]) == ""
