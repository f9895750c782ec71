import pytest
import torch
import torch.nn.functional as F

from qtool.passes.weight_layout import WeightLayout, num_output_channels, per_output_channel

CONVOLUTIONS = {0: (F.conv1d, F.conv2d, F.conv3d), 1: (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)}


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("axis", [0, 1])
def test_scaling_the_weight_scales_the_output_channels(axis, rank, groups):
    inputs, outputs = 2 * groups, 4 * groups
    shape = (outputs, inputs // groups) if axis == 0 else (inputs, outputs // groups)
    weight = torch.randn(*shape, *(3, 2, 2)[:rank], dtype=torch.float64)
    x = torch.randn(2, inputs, *(5, 6, 4)[:rank], dtype=torch.float64)
    factor = torch.randn(outputs, dtype=torch.float64)
    op = CONVOLUTIONS[axis][rank - 1]
    expected = op(x, weight, groups=groups) * factor.view(-1, *[1] * rank)
    laid_out = per_output_channel(factor, weight.shape, axis=axis, groups=groups)
    torch.testing.assert_close(op(x, weight * laid_out, groups=groups), expected)
    assert num_output_channels(weight.shape, axis=axis, groups=groups) == outputs


def test_a_linear_weight_has_no_kernel():
    assert per_output_channel(torch.arange(3), (3, 5), axis=0, groups=1).shape == (3, 1)


def test_groups_follow_one_another():
    laid_out = per_output_channel(torch.arange(4), (4, 2, 3), axis=1, groups=2)
    assert laid_out[..., 0].tolist() == [[0, 1], [0, 1], [2, 3], [2, 3]]


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("axis", [0, 1])
def test_channels_first_has_a_row_of_weights_for_each_output_channel(axis, groups):
    inputs, outputs = 2 * groups, 4 * groups
    shape = (outputs, inputs // groups, 3) if axis == 0 else (inputs, outputs // groups, 3)
    layout = WeightLayout(axis, groups)
    channel = torch.arange(outputs)
    rows = layout.channels_first(layout.spread(channel, shape).expand(shape))
    assert rows.shape == (outputs, inputs // groups, 3)
    assert torch.equal(rows, channel.view(-1, 1, 1).expand_as(rows))


def test_only_groups_of_a_transposed_convolution_leave_no_axis():
    axes = [WeightLayout(axis, groups).channel_axis for axis in (0, 1) for groups in (1, 2)]
    assert axes == [0, 0, 1, None]
