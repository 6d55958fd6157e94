"""Context managers as decorators of functions, generators and coroutines; each resumed part of a generator
runs inside the context."""
import functools
import types
import warnings


def decorate_with_context(function, context):
    """Returns the function inside context(), which returns a context manager."""
    import inspect  # takes as long as a tenth of the package
    if inspect.isclass(function):
        warnings.warn("a class is decorated with a context manager: a function that makes its instances inside of it takes its "
                      "place\n  hint: decorate its methods, __init__ for the same effect", FutureWarning, stacklevel=3)
    if inspect.isgeneratorfunction(function):
        def inside(*args, **options):
            return (yield from _resume_in_context(function(*args, **options), context))
    elif inspect.iscoroutinefunction(function):
        async def inside(*args, **options):
            return await _awaited(function(*args, **options), context)
    elif inspect.isasyncgenfunction(function):
        def inside(*args, **options):
            return _generate_in_context(function(*args, **options), context)
    else:
        def inside(*args, **options):
            with context():
                return function(*args, **options)

    return functools.wraps(function)(inside)


def _resume_in_context(inner, context):
    """Passes on what the generator or coroutine yields and receives; between its parts the caller's mode is
    as it was."""
    try:
        with context():
            given = inner.send(None)
        while True:
            try:
                sent = yield given
            except GeneratorExit:
                with context():
                    inner.close()
                raise
            except BaseException as error:
                with context():
                    given = inner.throw(error)
            else:
                with context():
                    given = inner.send(sent)
    except StopIteration as end:
        return end.value


_awaited = types.coroutine(_resume_in_context)


async def _generate_in_context(inner, context):
    try:
        given = await _awaited(inner.asend(None), context)
        while True:
            try:
                sent = yield given
            except GeneratorExit:
                await _awaited(inner.aclose(), context)
                raise
            except BaseException as error:
                given = await _awaited(inner.athrow(error), context)
            else:
                given = await _awaited(inner.asend(sent), context)
    except StopAsyncIteration:
        pass
