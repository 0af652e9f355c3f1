"""Options of policies: values that a policy cannot use are refused when it is chosen."""

import re

import pytest

from tranche.policies import get_policy

NUMBER = "is a number (several: separated by /), not"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chunk:aging=nan", f"option aging of policy chunk {NUMBER} 'nan'"),
        ("tiresias:limits=1/nan", f"option limits of policy tiresias {NUMBER} '1/nan'"),
        ("chunk:aging=-3", "chunk needs aging ≥ 0"),
        ("chunk:copies=-1", "chunk needs copies ≥ 0"),
        ("chunk:price=-1", "chunk needs price ≥ 0"),
        ("chunk:fair=2", "chunk needs fair 0 or 1"),
        ("chunk:levels=-2", "chunk needs levels 0 or 1"),
    ],
)
def test_option_value_that_means_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        get_policy(text)
