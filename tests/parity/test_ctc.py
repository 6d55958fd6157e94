"""ctc_loss beside PyTorch's: values and gradients in f64, what is impossible, and what is wrong with its operands."""
import numpy as np
import pytest

torch = pytest.importorskip("torch")
import cotan  # noqa: E402
from cotan.nn import functional as F  # noqa: E402


@pytest.mark.parametrize("steps, n, classes, size", [(12, 3, 5, 4), (6, 3, 5, 5), (100, 4, 20, 30), (5, 2, 3, 0)])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("flat", [False, True])
def test_ctc(steps, n, classes, size, reduction, zero_infinity, flat):
    rng = np.random.default_rng(steps)
    x = rng.standard_normal((steps, n, classes))
    target_lengths, input_lengths = rng.integers(0, size + 1, n), rng.integers(steps // 2, steps + 1, n)
    target_lengths[0], input_lengths[0] = size, steps
    targets = rng.integers(1, classes, (n, size))
    if flat:
        targets = np.concatenate([row[:length] for row, length in zip(targets, target_lengths)])
    theirs, ours = torch.tensor(x, requires_grad=True), cotan.tensor(x, requires_grad=True)
    wanted = torch.nn.functional.ctc_loss(theirs.log_softmax(2), torch.tensor(targets), torch.tensor(input_lengths),
                                          torch.tensor(target_lengths), reduction=reduction, zero_infinity=zero_infinity)
    loss = F.ctc_loss(ours.log_softmax(2), targets, cotan.asarray(input_lengths), target_lengths, reduction=reduction,
                      zero_infinity=zero_infinity)
    np.testing.assert_allclose(loss.detach().numpy(), wanted.detach().numpy(), rtol=1e-9, atol=1e-9)
    if np.isfinite(wanted.detach().numpy()).all():
        wanted.sum().backward()
        loss.sum().backward()
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-7, atol=1e-9)


def test_one_without_a_batch():
    x = np.random.default_rng(1).standard_normal((9, 4))
    wanted = torch.nn.CTCLoss()(torch.tensor(x).log_softmax(1), torch.tensor([1, 1, 3]), torch.tensor(9), torch.tensor(3))
    loss = cotan.nn.CTCLoss()(cotan.asarray(x).log_softmax(1), cotan.asarray([1, 1, 3]), [9], [3])
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-9)


@pytest.mark.parametrize("arguments, text", [
    (([[1, 2]], [9], [2]), "ctc_loss: input_lengths must be from 0 to 5, one is 9"),
    (([[1, 2]], [5], [3]), "ctc_loss: target_lengths must be from 0 to 2, one is 3"),
    (([[1, 7]], [5], [2]), "ctc_loss: targets must be from 0 to 3, one is 7"),
    (([[1, 2]], [5, 5], [2]), "ctc_loss: input_lengths has 2 numbers, the batch has 1 elements"),
    (([1], [5], [2]), "ctc_loss: the targets have shape (1,), they are (N, S), or one row of 2")])
def test_what_is_wrong(arguments, text):
    with pytest.raises(ValueError) as error:
        F.ctc_loss(cotan.zeros(5, 1, 4), *arguments)
    assert str(error.value) == text
