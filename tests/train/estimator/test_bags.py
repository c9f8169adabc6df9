"""Bags: the order of instances does not matter, nor their company, nor their number."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from primal_attention import PrimalBagClassifier

SMALL = {
    "width": 8, "heads": 2, "feedforward": 8, "steps": 4, "epochs": 1, "random_state": 0,
}  # fmt: skip
RNG = np.random.default_rng(0)
BAGS = [RNG.standard_normal((n, 3)) for n in (5, 1, 7, 3, 6, 4, 2, 9)]
Y = np.array(["no", "yes"] * 4)


@pytest.fixture(scope="module")
def classifier():
    return PrimalBagClassifier(**SMALL).fit(BAGS, Y)


def test_instances_have_no_order(classifier):
    turned = [bag[::-1] for bag in BAGS]
    np.testing.assert_allclose(
        classifier.predict_proba(turned), classifier.predict_proba(BAGS), rtol=1e-9
    )


def test_bags_do_not_see_each_other(classifier):
    whole = classifier.predict_proba(BAGS)
    for i, bag in enumerate(BAGS):
        np.testing.assert_allclose(classifier.predict_proba([bag])[0], whole[i], rtol=1e-9)


def test_weights_of_instances(classifier):
    weights = classifier.instance_weights(BAGS[2])
    assert weights.shape == (7,)
    assert weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(classifier.instance_weights(BAGS[2][::-1]), weights[::-1], rtol=1e-9)
    assert classifier.instance_weights(BAGS[1]) == pytest.approx([1.0])


def test_bags_may_be_larger_than_those_of_fit(classifier):
    assert classifier.predict([RNG.standard_normal((500, 3))]).shape == (1,)


def test_in_a_folder(classifier, tmp_path):
    classifier.save(tmp_path / "saved")
    again = PrimalBagClassifier.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.predict_proba(BAGS), classifier.predict_proba(BAGS))
    np.testing.assert_array_equal(
        again.instance_weights(BAGS[0]), classifier.instance_weights(BAGS[0])
    )


@pytest.mark.parametrize("options", [{"weights": "data"}, {"attention": "linformer"}])
def test_layers_whose_size_follows_from_the_largest_bag_come_back(options, tmp_path):
    one = PrimalBagClassifier(**SMALL | {"steps": 1, "epochs": 1} | options).fit(BAGS, Y)
    one.save(tmp_path / "saved")
    again = PrimalBagClassifier.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.predict_proba(BAGS), one.predict_proba(BAGS))


def test_names_of_columns_are_those_of_the_last_fit():
    pd = pytest.importorskip("pandas")
    one = PrimalBagClassifier(**SMALL | {"steps": 1, "epochs": 1})
    one.fit(pd.DataFrame(np.eye(4), columns=list("abcd")), [0, 1, 0, 1])
    assert one.feature_names_in_.tolist() == list("abcd")
    assert not hasattr(one.fit(BAGS, Y), "feature_names_in_")


def test_wrong_bags_are_named(classifier):
    with pytest.raises(ValueError, match="bag 1 of X has 2 columns; expected 3"):
        classifier.predict([BAGS[0], BAGS[1][:, :2]])
    with pytest.raises(ValueError, match="bag 0 of X has an infinite value"):
        classifier.predict([np.full((2, 3), np.inf)])
