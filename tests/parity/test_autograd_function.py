"""cotan.autograd.Function, hooks and retain_grad against torch: one program for both."""
import cotan
import numpy as np
import pytest
import torch

needs_2 = pytest.mark.skipif(int(torch.__version__.partition(".")[0]) < 2, reason="PyTorch before 2 has other names and rules here")
RNG = np.random.default_rng(5)
X, W = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 2))


def tensor(lib, value, grad=True):
    made = lib.tensor(value, dtype=lib.float64)
    return made.requires_grad_() if grad else made


def both(program, tolerance=1e-9):
    """What the program gives, a list of tensors and other values, is the same with both libraries."""
    ours, theirs = program(cotan), program(torch)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        if isinstance(b, torch.Tensor):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance)
            assert a.requires_grad == b.requires_grad
        else:
            assert a == b


def exp_of(lib):
    class Exp(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            y, = ctx.saved_tensors
            return grad * y

    return Exp.apply


def linear_of(lib):
    class Linear(lib.autograd.Function):
        @staticmethod
        def forward(x, weight, bias, scale):
            return x @ weight * scale + bias

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, weight, bias, scale = inputs
            ctx.save_for_backward(x, weight)
            ctx.scale = scale

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            assert ctx.needs_input_grad == (True, True, False, False)
            return grad @ weight.T * ctx.scale, x.T @ grad * ctx.scale, None, None

    return Linear.apply


def test_saved_results_and_three_derivatives():
    def program(lib):
        x = tensor(lib, X)
        found, y = [], exp_of(lib)(x * 2)
        for _ in range(3):
            y, = lib.autograd.grad((y * x).sum(), x, create_graph=True)
            found.append(y)
        y.sum().backward()
        return found + [x.grad]

    both(program)


@needs_2
def test_setup_context_and_what_is_no_tensor():
    def program(lib):
        x, weight, bias = tensor(lib, X), tensor(lib, W), tensor(lib, np.ones(2), grad=False)
        h = linear_of(lib)(x, weight, bias, 0.5)
        loss = (h.tanh() * linear_of(lib)(x, weight, bias, 2.0)).sum()
        loss.backward()
        return [loss, x.grad, weight.grad]

    both(program)


def test_a_chain_whose_parts_meet_again():
    """Residual connections around functions: each value's gradient is complete before it goes on."""
    def program(lib):
        x, w = tensor(lib, X), tensor(lib, np.eye(3) * 0.3)
        calls, h = [], x

        class Cube(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x, name):
                ctx.save_for_backward(x)
                ctx.name = name
                return x * x * x

            @staticmethod
            def backward(ctx, grad):
                calls.append(ctx.name)
                x, = ctx.saved_tensors
                return 3 * x * x * grad, None

        for i in range(5):
            h = h + 0.1 * Cube.apply(h @ w, i) * h
        (h * h).sum().backward()
        return [calls, x.grad, w.grad]

    both(program)


def test_several_results():
    def program(lib):
        seen = []

        class Parts(lib.autograd.Function):
            @staticmethod
            def forward(ctx, a, b):
                ctx.set_materialize_grads(False)
                largest = a.argmax(1)
                ctx.mark_non_differentiable(largest)
                ctx.save_for_backward(a, b)
                return a * b, a + b, largest

            @staticmethod
            def backward(ctx, product, total, largest):
                seen.append((product is None, total is None, largest is None))
                a, b = ctx.saved_tensors
                zero = 0 * a
                product, total = zero if product is None else product, zero if total is None else total
                return product * b + total, product * a + total

        a, b = tensor(lib, X), tensor(lib, X[::-1].copy())
        product, total, largest = Parts.apply(a, b)
        (product * product).sum().backward()
        again = Parts.apply(a, b)
        (again[0].sin() * again[1]).sum().backward()
        return [seen, a.grad, b.grad, largest, product, total]

    both(program)


def test_zeros_where_nothing_came():
    def program(lib):
        class Two(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2, x * 3

            @staticmethod
            def backward(ctx, first, second):
                return 2 * first + 3 * second + 1

        x = tensor(lib, X)
        Two.apply(x)[1].sum().backward()
        return [x.grad]

    both(program)


def test_straight_through_and_reversed_gradients():
    def program(lib):
        class Round(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.round()

            @staticmethod
            def backward(ctx, grad):
                return grad

        class Reversed(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x, alpha):
                ctx.alpha = alpha
                return x.view_as(x)

            @staticmethod
            def backward(ctx, grad):
                return -ctx.alpha * grad, None

        x = tensor(lib, X)
        (Round.apply(x * 3) * x).sum().backward()
        first = x.grad.clone()
        x.grad = None
        Reversed.apply(x * x, 0.5).sum().backward()
        return [first, x.grad]

    both(program)


def test_broadcast_gradients_are_summed():
    def program(lib):
        class Add(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x, bias):
                return x + bias

            @staticmethod
            def backward(ctx, grad):
                return grad, grad

        x, bias = tensor(lib, X), tensor(lib, np.ones((1, 3)))
        (Add.apply(x, bias) * X[0, 0]).sin().sum().backward()
        return [x.grad, bias.grad]

    both(program)


def test_without_gradients():
    def program(lib):
        x = tensor(lib, X)
        with lib.no_grad():
            quiet = exp_of(lib)(x)
        return [quiet, exp_of(lib)(tensor(lib, X, grad=False))]

    both(program)


def test_complex_numbers():
    def program(lib):
        class Square(lib.autograd.Function):
            @staticmethod
            def forward(ctx, z):
                ctx.save_for_backward(z)
                return z * z

            @staticmethod
            def backward(ctx, grad):
                z, = ctx.saved_tensors
                return grad * (2 * z).conj()

        x = tensor(lib, X)
        z = Square.apply(lib.complex(x, x * x))
        (z.real * z.imag.sin()).sum().backward()
        return [x.grad]

    both(program)


def test_once_differentiable():
    def program(lib):
        class Square(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @lib.autograd.function.once_differentiable
            def backward(ctx, grad):
                x, = ctx.saved_tensors
                return 2 * x * grad

        x = tensor(lib, X)
        Square.apply(x).sum().backward()
        first = x.grad.clone()
        g, = lib.autograd.grad((Square.apply(x) * x).sum(), x, create_graph=True)
        try:
            g.sum().backward()
        except RuntimeError as error:
            return [first, str(error)]

    both(program)


def test_a_training_loop():
    def program(lib):
        x, y, w = tensor(lib, X, grad=False), tensor(lib, X[:, :2], grad=False), tensor(lib, W)
        optimizer = lib.optim.SGD([w], lr=0.05)
        for _ in range(20):
            optimizer.zero_grad()
            loss = ((exp_of(lib)((x @ w).tanh()) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
        return [w, loss]

    both(program)


@needs_2
def test_hooks_and_retained_gradients():
    def program(lib):
        x, seen = tensor(lib, X), []
        h = x * x
        h.retain_grad()
        h.register_hook(lambda grad: seen.append(round(grad.sum().item(), 9)))
        handle = h.register_hook(lambda grad: grad * 2)
        y = exp_of(lib)(h)
        y.retain_grad()
        y.register_hook(lambda grad: grad + 1)
        (y * h).sum().backward()
        first = [h.grad, y.grad, x.grad.clone()]
        handle.remove()
        x.grad = None
        k = x * 3
        k.register_hook(lambda grad: grad.clamp(-0.5, 0.5))
        (k * k).sum().backward()
        z = (x * x).sin()
        z.retain_grad()
        for _ in range(2):  # gradients add up
            z.sum().backward(retain_graph=True)
        return first + [x.grad, seen, z.grad]

    both(program)


@needs_2
def test_hooks_see_gradients_that_are_asked_for():
    def program(lib):
        x = tensor(lib, X)
        h = x * x
        h.register_hook(lambda grad: grad * 3)
        return [*lib.autograd.grad(h.sin().sum(), h, retain_graph=True), *lib.autograd.grad(h.sin().sum(), x)]

    both(program)


def test_grad_outputs_that_hang_on_the_inputs():
    def program(lib):
        x = tensor(lib, X)
        first, = lib.autograd.grad(x ** 3, x, grad_outputs=x * x, create_graph=True)
        return [first, *lib.autograd.grad(first.sum(), x)]

    both(program)


def test_an_input_that_is_read_in_between():
    def program(lib):
        x = tensor(lib, X)
        h = x * 2
        total = round(h.sum().item(), 9)
        (h * x).sum().backward()
        return [total, x.grad]

    both(program)


@pytest.mark.parametrize("name", ["gradcheck", "gradgradcheck"])
def test_gradcheck(name):
    def program(lib):
        check, w = getattr(lib.autograd, name), tensor(lib, W)

        class Wrong(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * x

            @staticmethod
            def backward(ctx, grad):
                return grad

        found = [check(lambda x, w: (exp_of(lib)(x @ w), (x * x).sum()), (tensor(lib, X * 0.3), w)),
                 check(lambda x: Wrong.apply(x), (tensor(lib, X),), raise_exception=False)]
        with pytest.raises(RuntimeError, match="Jacobian mismatch for output 0 with respect to input 0"):
            check(lambda x: Wrong.apply(x) * x, (tensor(lib, X),))
        return found

    both(program)


def test_gradcheck_of_complex_numbers():
    def program(lib):
        z = lib.complex(tensor(lib, X, grad=False), tensor(lib, X * 2, grad=False)).requires_grad_()
        return [lib.autograd.gradcheck(lambda z: (z * z.conj() * z, z.abs()), (z,)),
                lib.autograd.gradcheck(lambda x: lib.complex(x, x * x), (tensor(lib, X),))]

    both(program)


def errors(program):
    """What both say, where the texts are PyTorch's."""
    said = []
    for lib in (cotan, torch):
        with pytest.raises(RuntimeError) as error:
            program(lib)
        said.append(str(error.value))
    return said


def wrong(lib, found):
    class Wrong(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, grad):
            return found(grad)

    Wrong.apply(tensor(lib, X), tensor(lib, X)).sum().backward()


def test_wrong_gradients():
    ours, theirs = errors(lambda lib: wrong(lib, lambda grad: grad))
    assert ours == theirs == "function WrongBackward returned an incorrect number of gradients (expected 2, got 1)"
    ours, theirs = errors(lambda lib: wrong(lib, lambda grad: (grad, grad[0, :2])))
    assert ours == theirs == "Function WrongBackward returned an invalid gradient at index 1 - got [2] but expected shape compatible with [4, 3]"


def test_errors_that_have_pytorchs_text():
    for program in (lambda lib: lib.autograd.Function.apply(tensor(lib, X)),
                    lambda lib: tensor(lib, X, grad=False).register_hook(print),
                    lambda lib: tensor(lib, X, grad=False).retain_grad()):
        with pytest.raises((RuntimeError, NotImplementedError)) as ours:
            program(cotan)
        with pytest.raises((RuntimeError, NotImplementedError)) as theirs:
            program(torch)
        assert str(ours.value) == str(theirs.value).split(" See ")[0]


@needs_2
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoints(use_reentrant):
    """torch.utils.checkpoint, with a function that reads values, of one and of several results; and in a sequence."""
    from cotan.utils import checkpoint as ours
    from torch.utils import checkpoint as theirs
    calls = []

    def program(lib):
        module = ours if lib is cotan else theirs
        x, w = tensor(lib, X), tensor(lib, np.eye(3) * 0.5)

        def block(x, name):
            calls.append((lib.__name__, name, x.sum().item() > 0))
            h = (x @ w).tanh()
            return h * (2 if h.sum().item() > 0 else 3), h.sum(0)

        h, total = module.checkpoint(block, x, "a", use_reentrant=use_reentrant)
        h, other = module.checkpoint(block, h * x, "b", use_reentrant=use_reentrant)
        (h.sum() * total.sum() + other.sum()).backward()
        layers = lib.nn.Sequential(lib.nn.Linear(3, 3), lib.nn.Tanh(), lib.nn.Linear(3, 2)).double()
        with lib.no_grad():
            for parameter in layers.parameters():
                parameter.fill_(0.3)
        y = tensor(lib, X)
        module.checkpoint_sequential(layers, 2, y, use_reentrant=use_reentrant).sum().backward()
        return [x.grad, w.grad, y.grad, layers[0].weight.grad, layers[2].bias.grad]

    both(program)
    mine, yours = ([call[1:] for call in calls if call[0] == name] for name in ("cotan", "torch"))
    assert mine == yours and len(mine) == 4


def test_a_gradient_penalty():
    """Second derivatives through layers whose biases are behind no slope."""
    def program(lib):
        x, w, b = tensor(lib, X), tensor(lib, W), tensor(lib, np.ones(2))
        score = ((x @ w + b).tanh() + b).sum()
        grad, = lib.autograd.grad(score, x, create_graph=True)
        penalty = ((grad.norm(dim=1) - 1) ** 2).mean() + 0 * b.sum()
        penalty.backward()
        return [w.grad, b.grad]

    both(program)
