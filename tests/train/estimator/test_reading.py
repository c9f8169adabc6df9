"""Arrays whose timepoints and channels are swapped are not taken in silence."""

import numpy as np
import pytest

from primal_attention.tasks.collection import read_collection
from primal_attention.train.estimator.inputs import warn_if_transposed
from primal_attention.train.estimator.reading import SeriesEstimator


def test_many_channels_of_few_timepoints_are_doubted_in_fit():
    X = np.zeros((5, 100, 6))
    with pytest.warns(UserWarning, match="100 channels and at most 6 timepoints; expected .cases,"):
        SeriesEstimator()._read(X, None)
    for plausible in (X.transpose(0, 2, 1), np.zeros((2, 963, 144))):
        warn_if_transposed(read_collection(plausible))


def test_unequal_channels_of_equal_lengths_are_doubted():
    cases = [np.zeros((7, 12)), np.zeros((9, 12))]  # (timepoints, channels)
    with pytest.raises(ValueError, match=r"case 1 .* in case 0; are timepoints and channels swap"):
        read_collection(cases)
    with pytest.raises(ValueError, match=r"in case 0$"):
        read_collection([np.zeros((2, 12)), np.zeros((3, 11))])


def test_the_channels_of_fit_as_timepoints_are_doubted():
    with pytest.raises(ValueError, match="X has 29 channels; expected 12 as in fit; are timepoint"):
        SeriesEstimator()._read(np.zeros((3, 29, 12)), 12)
    with pytest.raises(ValueError, match=r"X has 29 channels; expected 12 as in fit$"):
        SeriesEstimator()._read(np.zeros((3, 29, 20)), 12)
