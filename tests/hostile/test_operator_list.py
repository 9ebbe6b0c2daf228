"""The list of operators in the package is what the rules derive from the installed torch, and nothing else."""

import pytest
from headway_runtime.prepare.translate import operators

from tests.hostile import derive_operators
from tests.hostile.operator_families import FAMILIES, WHY


@pytest.fixture(scope="module")
def derived() -> dict[str, str]:
    return derive_operators.derive()[0]


def test_the_list_is_what_the_rules_derive(derived: dict[str, str]) -> None:
    listed = derive_operators.LIST.read_text(encoding="ascii").splitlines()
    assert listed == [derived[key] for key in sorted(derived)], (
        "run tests/hostile/derive_operators.py --write and review"
    )


def test_the_page_about_the_list_is_up_to_date() -> None:
    page = derive_operators.PAGE.read_text(encoding="utf-8")
    assert page == derive_operators.page(*derive_operators.derive()), "run derive_operators --write"


def test_every_family_left_out_says_what_stands_behind_it() -> None:
    assert not FAMILIES.keys() - WHY.keys()


def test_every_signature_on_the_list_can_be_read() -> None:
    for name in operators.names():
        signature = operators.signature(name)
        assert signature is not None
        assert signature.name == name


@pytest.mark.parametrize(
    "name",
    [
        "aten.empty.memory_format",
        "aten.new_empty.default",
        "aten.empty_like.default",
        "aten.from_file.default",
        "aten.relu.out",
        "aten.native_batch_norm.default",
        "aten._native_batch_norm_legit.default",
        "aten.rand.default",
        "aten.bernoulli.p",
        "aten.resize_.default",
        "aten.set_.source_Storage",
        "aten._print.default",
        "aten.__lshift__.Scalar_out",
        "aten.cholesky.default",
        "aten.lcm.default",
        "aten.gcd_.default",
        "aten.set.source_Tensor",
        "aten._embedding_bag_backward.default",
    ],
)
def test_what_must_not_be_on_the_list_is_not(name: str) -> None:
    assert operators.signature(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "aten.to.dtype_layout",
        "aten.lstm.input",
        "aten.gru.input",
        "aten.rnn_tanh.input",
        "aten.batch_norm.default",
        "aten.dropout.default",
        "aten.dropout_.default",
        "aten.embedding_bag.padding_idx",
        "aten._fft_r2c.default",
    ],
)
def test_what_real_models_need_is_on_the_list(name: str) -> None:
    assert operators.signature(name) is not None


def test_every_composite_named_as_a_possible_alias_is_on_the_list() -> None:
    assert not operators.MAYBE_ALIAS - operators.names()


def test_a_write_and_its_alias_are_read_from_the_schema() -> None:
    signature = operators.parse_schema(
        "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
    )
    assert [(p.name, p.writes, p.alias, p.required, p.keyword_only) for p in signature.parameters] == [
        ("self", True, "a", True, False),
        ("other", False, "", True, False),
        ("alpha", False, "", False, True),
    ]
    assert signature.returns == (("Tensor", "a"),)
