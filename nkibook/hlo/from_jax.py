"""HLO of a JAX function, before and after XLA's optimisation.

The only HLO module with JAX in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from nkibook.hlo.module import HloModule, HloUnavailable


def jax_hlo(
    fn: Callable[..., Any],
    *args: Any,
    static_argnums: int | Sequence[int] = (),
    optimized: bool = False,
    **kwargs: Any,
) -> HloModule:
    """The HLO module that JAX hands to XLA for `fn(*args, **kwargs)`. Nothing is executed.

    Args:
        fn: a function of JAX arrays, or one already wrapped by `jax.jit` (its own options hold).
        *args, **kwargs: pytrees of arrays (their shardings are taken over), or of
            `jax.ShapeDtypeStruct` when there is no data.
        static_argnums: arguments that are Python constants; for a plain `fn` only.
        optimized: return the module after XLA's optimisation, which compiles it. The same as
            `jax_hlo(...).after`.

    Returns:
        The module. `.stablehlo` is what JAX lowered to first, `.after` the module XLA compiled
        for the default JAX backend. On a CPU that is XLA's CPU backend: its fusions are not those
        of neuronx-cc, which takes the module *before* optimisation.

    Raises:
        ImportError: when JAX is not installed.
        ValueError: `static_argnums` together with a jitted `fn`.
        HloUnavailable: from `.after`, when XLA cannot compile the module; the message has XLA's.
    """
    try:
        import jax
    except ModuleNotFoundError as error:
        if error.name != "jax":
            raise
        raise ImportError(
            "jax_hlo needs JAX, which is not installed: pip install 'nki-book[jax]' "
            "(or run `make env`)."
        ) from error

    if hasattr(fn, "lower"):
        if static_argnums != ():
            raise ValueError(
                f"static_argnums={static_argnums!r} has no effect on a jitted function: "
                "give it to jax.jit, or pass the plain function."
            )
        jitted = fn
    else:
        jitted = jax.jit(fn, static_argnums=static_argnums)
    lowered = jitted.lower(*args, **kwargs)
    module = HloModule(
        # Not lowered.as_text("hlo"): that leaves out backend_config and metadata.
        lowered.compiler_ir("hlo").as_hlo_module().to_string(),
        origin=f"JAX {jax.__version__}",
        stage="before",
        stablehlo=lowered.as_text(),
        after=functools.partial(_compile, lowered),
    )
    return module.after if optimized else module


def _compile(lowered: Any) -> tuple[str, str, None]:
    """Text of the optimised module, and the XLA backend that made it. Its metadata has labels."""
    import jax

    try:
        text = lowered.compile().as_text()
    except jax.errors.JaxRuntimeError as error:
        raise HloUnavailable(f"XLA did not compile the module: {error}") from error
    if text is None:
        raise HloUnavailable("this JAX backend does not give out the module it compiled.")
    return text, jax.default_backend(), None
