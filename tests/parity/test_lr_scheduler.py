"""cotan.optim.lr_scheduler against torch.optim.lr_scheduler: the rates (and momenta) of 40 steps, also when a run goes on."""
import copy
import warnings

import pytest

torch = pytest.importorskip("torch")
cotan = pytest.importorskip("cotan")

CASES = [
    ("LambdaLR", {"lr_lambda": lambda step: 0.9 ** step}), ("LambdaLR", {"lr_lambda": [lambda step: 1.0, lambda step: 1 / (1 + step)]}),
    ("MultiplicativeLR", {"lr_lambda": lambda step: 0.95}), ("StepLR", {"step_size": 7}), ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [3, 10, 10, 20], "gamma": 0.3}), ("ConstantLR", {}), ("ConstantLR", {"factor": 0.5, "total_iters": 12}),
    ("LinearLR", {}), ("LinearLR", {"start_factor": 0.1, "end_factor": 0.7, "total_iters": 17}), ("ExponentialLR", {"gamma": 0.9}),
    ("PolynomialLR", {"total_iters": 23, "power": 2.0}), ("CosineAnnealingLR", {"T_max": 9, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 5, "T_mult": 2}), ("CosineAnnealingWarmRestarts", {"T_0": 7}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 40}), ("OneCycleLR", {"max_lr": [0.5, 0.1], "epochs": 4, "steps_per_epoch": 10,
                                                                       "anneal_strategy": "linear", "three_phase": True}),
    ("OneCycleLR", {"max_lr": 0.2, "total_steps": 41, "cycle_momentum": False}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 5}),
    ("CyclicLR", {"base_lr": [0.01, 0.02], "max_lr": [0.2, 0.1], "step_size_up": 3, "step_size_down": 6, "mode": "triangular2"}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 4, "mode": "exp_range", "gamma": 0.97, "cycle_momentum": False}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 4, "scale_fn": lambda cycle: 1 / cycle}),
]


def made(library, kind="SGD"):
    parameters = [library.nn.Parameter(library.ones(2)) for _ in range(2)]
    groups = [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.05}]
    options = {"momentum": 0.9} if kind == "SGD" else {}
    return getattr(library.optim, kind)(groups, lr=0.1, **options)


def run(optimizer, scheduler, steps, metrics=None):
    found = []
    for step in range(steps):
        optimizer.step()
        scheduler.step(*([] if metrics is None else [metrics[step]]))
        for group in optimizer.param_groups:
            found.append(group["lr"])
            found.append(group["betas"][0] if "betas" in group else group["momentum"])
        found += scheduler.get_last_lr() if hasattr(scheduler, "get_last_lr") else []
    return found


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("name, options", CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_rates(name, options, kind):
    if name == "CyclicLR" and kind == "Adam" and int(torch.__version__.partition(".")[0]) < 2:
        pytest.skip("PyTorch before 2 does not turn the momentum of Adam")
    found = []
    for library in (cotan, torch):
        optimizer = made(library, kind)
        found.append(run(optimizer, getattr(library.optim.lr_scheduler, name)(optimizer, **options), 39))
    assert found[0] == pytest.approx(found[1], rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("options", [{}, {"patience": 2, "factor": 0.5, "cooldown": 2}, {"mode": "max", "patience": 1},
                                     {"threshold_mode": "abs", "threshold": 0.2, "patience": 3, "min_lr": [0.01, 0.001]}])
def test_plateau(options):
    metrics = [1 / (1 + step) if step < 12 else 0.08 + 0.01 * (step % 3) for step in range(40)]
    found = []
    for library in (cotan, torch):
        optimizer = made(library)
        scheduler = library.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        rates = []
        for metric in metrics:
            optimizer.step()
            scheduler.step(metric)
            rates += [group["lr"] for group in optimizer.param_groups]
        found.append(rates)
    assert found[0] == pytest.approx(found[1], rel=1e-12)


def chained(library, optimizer, kind):
    s = library.optim.lr_scheduler
    parts = [s.LinearLR(optimizer, 0.1, total_iters=5), s.CosineAnnealingLR(optimizer, 20), s.ExponentialLR(optimizer, 0.9)]
    return s.SequentialLR(optimizer, parts, [5, 25]) if kind == "sequential" else s.ChainedScheduler(parts[::2])


@pytest.mark.parametrize("kind", ["sequential", "chained"])
def test_several(kind):
    found = []
    for library in (cotan, torch):
        optimizer = made(library)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(run(optimizer, chained(library, optimizer, kind), 35))
    assert found[0] == pytest.approx(found[1], rel=1e-12)


@pytest.mark.parametrize("name, options", CASES[2:], ids=lambda value: value if isinstance(value, str) else "")
def test_a_run_goes_on(name, options):
    whole, first, second = made(cotan), made(cotan), made(cotan)
    make = getattr(cotan.optim.lr_scheduler, name)
    wanted = run(whole, make(whole, **options), 30)
    scheduler = make(first, **options)
    begin = run(first, scheduler, 13)
    again = make(second, **options)
    again.load_state_dict(copy.deepcopy(scheduler.state_dict()))
    second.load_state_dict(first.state_dict())
    assert begin + run(second, again, 17) == pytest.approx(wanted, rel=1e-12)


def test_order_is_warned_about():
    optimizer = made(cotan)
    scheduler = cotan.optim.lr_scheduler.StepLR(optimizer, 2)
    with pytest.warns(UserWarning, match=r"Detected call of `lr_scheduler.step\(\)` before `optimizer.step\(\)`"):
        scheduler.step()


def test_rates_make_no_plans():
    optimizer = made(cotan)
    scheduler = cotan.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    plans = []
    for step in range(20):
        optimizer.zero_grad()
        sum((p * p).sum() for p in parameters).backward()
        optimizer.step()
        scheduler.step()
        plans.append(cotan.stats()["plans_made"])
    assert plans[3] == plans[-1]
