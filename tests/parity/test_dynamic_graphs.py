"""Programs whose graph is another one each time, against PyTorch: a recurrent network over lists of several lengths, and a
recursive tree-LSTM. Losses and the gradients of all weights, and what the weights are after some steps."""
import numpy as np
import pytest

torch = pytest.importorskip("torch")
cotan = pytest.importorskip("cotan")

LIBRARIES = (torch, cotan)
SIZE, HIDDEN, WORDS = 5, 7, 11


def sequences(count, seed):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(int(n), SIZE)).astype("float32") for n in rng.integers(1, 12, count)]


def tree(rng, depth):
    """A word, or a pair of trees."""
    if depth == 0 or rng.random() < 0.25:
        return int(rng.integers(WORDS))
    return tree(rng, depth - 1), tree(rng, depth - 1)


def recurrent(lib):
    """A cell in a Python loop over the elements of a sequence; every other one by a gate that looks at a value."""
    nn = lib.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.skip, self.out = nn.GRUCell(SIZE, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, 1)

        def forward(self, x):
            h = lib.zeros(1, HIDDEN)
            for row in x:  # (SIZE,)
                h = self.cell(row[None], h)
                if h.sum() > 0.2:
                    h = h + lib.tanh(self.skip(h))
            return self.out(h).sum()

    return Net()


def tree_lstm(lib):
    """The binary tree-LSTM of Tai, Socher, Manning (2015): one gate of forgetting for each child."""
    nn = lib.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(WORDS, SIZE)
            self.leaf, self.inner, self.out = nn.Linear(SIZE, 3 * HIDDEN), nn.Linear(2 * HIDDEN, 5 * HIDDEN), nn.Linear(HIDDEN, 3)

        def node(self, tree):
            if isinstance(tree, int):
                i, o, u = self.leaf(self.words(lib.tensor([tree]))).chunk(3, 1)
                c = lib.sigmoid(i) * lib.tanh(u)
            else:
                (left, left_c), (right, right_c) = self.node(tree[0]), self.node(tree[1])
                i, o, u, f, g = self.inner(lib.cat([left, right], 1)).chunk(5, 1)
                c = lib.sigmoid(i) * lib.tanh(u) + lib.sigmoid(f) * left_c + lib.sigmoid(g) * right_c
            return lib.sigmoid(o) * lib.tanh(c), c

        def forward(self, tree):
            return (self.out(self.node(tree)[0]) ** 2).sum()

    return Net()


def pair(make):
    torch.manual_seed(0)
    theirs, ours = make(torch), make(cotan)
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    return theirs, ours


def near(ours, theirs, what):
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-5, err_msg=what)


@pytest.mark.parametrize("make, data, given", [
    (recurrent, sequences(8, 3), lambda lib, x: lib.tensor(x)),
    (tree_lstm, [tree(np.random.default_rng(seed), 5) for seed in range(8)], lambda lib, x: x)], ids=["sequences", "trees"])
def test_each_step_has_another_graph(make, data, given):
    theirs, ours = pair(make)
    optimizers = [lib.optim.SGD(net.parameters(), lr=0.05) for lib, net in zip(LIBRARIES, (theirs, ours))]
    for step, x in enumerate(data):
        losses = []
        for lib, net, optimizer in zip(LIBRARIES, (theirs, ours), optimizers):
            optimizer.zero_grad(set_to_none=True)
            losses.append(net(given(lib, x)))
            losses[-1].backward()
        near(losses[1], losses[0], f"loss {step}")
        for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters()):
            assert (a.grad is None) == (b.grad is None), name
            if a.grad is not None:
                near(a.grad, b.grad, f"{name} in step {step}")
        for optimizer in optimizers:
            optimizer.step()
    for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters()):
        near(a, b, name)


def test_a_batch_of_trees_is_one_loss():
    theirs, ours = pair(tree_lstm)
    trees = [tree(np.random.default_rng([seed, 1]), 6) for seed in range(6)]
    for net in (theirs, ours):
        sum(net(each) for each in trees).backward()
    for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters()):
        near(a.grad, b.grad, name)
