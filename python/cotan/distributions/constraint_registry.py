"""biject_to and transform_to: the transforms from real numbers to what satisfies a constraint."""
import numbers

from . import constraints, transforms

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Constraints and the functions that return their transforms."""

    def __init__(self):
        self._registry = {}

    def register(self, constraint, factory=None):
        """Registers factory(constraint) for a class of constraints, or for that of an instance; also as a decorator."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, constraints.Constraint):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint):
        if type(constraint) not in self._registry:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return self._registry[type(constraint)](constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _of_interval(constraint):
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, numbers.Number) and isinstance(high, numbers.Number) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)])


def _above(constraint):
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(constraint.lower_bound, 1)])


def _below(constraint):
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(constraint.upper_bound, -1)])


def _register_both():
    for registry in (biject_to, transform_to):
        def independent(constraint, registry=registry):
            return transforms.IndependentTransform(registry(constraint.base_constraint), constraint.reinterpreted_batch_ndims)

        def cat(constraint, registry=registry):
            return transforms.CatTransform([registry(one) for one in constraint.cseq], constraint.dim, constraint.lengths)

        def stack(constraint, registry=registry):
            return transforms.StackTransform([registry(one) for one in constraint.cseq], constraint.dim)

        for kind, factory in ((constraints.real, lambda c: transforms.identity_transform), (constraints.independent, independent),
                              (constraints.greater_than, _above), (constraints.greater_than_eq, _above),
                              (constraints.less_than, _below),
                              (constraints.interval, _of_interval), (constraints.half_open_interval, _of_interval),
                              (constraints.corr_cholesky, lambda c: transforms.CorrCholeskyTransform()),
                              (constraints.cat, cat), (constraints.stack, stack)):
            registry.register(kind, factory)
        registry.register(constraints.positive, lambda c: transforms.ExpTransform() if c.lower_bound == 0 else _above(c))
        registry.register(constraints.nonnegative, lambda c: transforms.ExpTransform() if c.lower_bound == 0 else _above(c))
    biject_to.register(constraints.simplex, lambda c: transforms.StickBreakingTransform())
    transform_to.register(constraints.simplex, lambda c: transforms.SoftmaxTransform())
    transform_to.register(constraints.lower_cholesky, lambda c: transforms.LowerCholeskyTransform())
    for matrices in (constraints.positive_definite, constraints.positive_semidefinite):
        transform_to.register(matrices, lambda c: transforms.PositiveDefiniteTransform())


_register_both()
