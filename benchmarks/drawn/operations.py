"""Operations of all sorts that a short step is drawn of (``short.py``).

Each reads the value of a number, and says whether it was added. What it reads besides (weights, tables, numbers of
rows) is an argument of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import jax
import jax.numpy as jnp

from .short import SIZES, Array, Drawing, Step, gradient, plain, updated

TRIES = 60


def elementwise(drawing: Drawing, read: int) -> bool:
    of = drawing.draw.choice((jnp.tanh, jnp.square, jax.nn.relu, jax.nn.gelu, jnp.exp))
    return drawing.add(of.__name__, of, read)


def joined(drawing: Drawing, read: int) -> bool:
    """With something of its shape, be it an argument."""
    shape = drawing.values[read].shape
    alike = [n for n, value in enumerate(drawing.values) if value.shape == shape and n != read]
    other = drawing.draw.choice(alike) if alike else drawing.argument(shape)
    return drawing.add(*drawing.draw.choice((("add", jnp.add), ("mul", jnp.multiply))), read, other)


def product(drawing: Drawing, read: int) -> bool:
    shape = drawing.values[read].shape
    weight = drawing.argument((shape[-1], drawing.draw.choice(SIZES)))
    return drawing.add("product", jnp.matmul, read, weight)


def own_product(drawing: Drawing, read: int) -> bool:
    if drawing.values[read].ndim < 2:
        return False
    return drawing.add("x.x^T", lambda x: x @ jnp.swapaxes(x, -1, -2), read)


def outer(drawing: Drawing, read: int) -> bool:
    rows = drawing.values[read].shape[0]
    return drawing.add("outer", lambda x, y: jnp.einsum("t...,ts->t...s", x, y), read, drawing.argument((rows, 8)))


def transpose(drawing: Drawing, read: int) -> bool:
    order = list(range(drawing.values[read].ndim))
    drawing.draw.shuffle(order)
    return drawing.add("transpose", lambda x: jnp.transpose(x, order), read)


def flattened(drawing: Drawing, read: int) -> bool:
    shape = drawing.values[read].shape
    if len(shape) < 2:
        return False
    at = drawing.draw.randrange(len(shape) - 1)
    made = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    return drawing.add("flatten", lambda x: x.reshape(made), read)


def unflattened(drawing: Drawing, read: int) -> bool:
    shape, parts = drawing.values[read].shape, drawing.draw.choice((2, 4, 8, 16))
    at = drawing.draw.randrange(len(shape))
    if shape[at] % parts or shape[at] < 2 * parts:
        return False
    halves = (parts, shape[at] // parts) if drawing.draw.random() < 0.5 else (shape[at] // parts, parts)
    made = (*shape[:at], *halves, *shape[at + 1 :])
    return drawing.add("unflatten", lambda x: x.reshape(made), read)


def normed(drawing: Drawing, read: int) -> bool:
    dim = drawing.draw.randrange(drawing.values[read].ndim)
    return drawing.add(f"norm{dim}", lambda x: x * jax.lax.rsqrt(jnp.mean(x * x, dim, keepdims=True) + 1e-6), read)


def softmax(drawing: Drawing, read: int) -> bool:
    dim = drawing.draw.randrange(drawing.values[read].ndim)
    return drawing.add(f"softmax{dim}", lambda x: jax.nn.softmax(x, dim), read)


def reduction(drawing: Drawing, read: int) -> bool:
    dim, keeps = drawing.draw.randrange(drawing.values[read].ndim), drawing.draw.random() < 0.5
    of = drawing.draw.choice((jnp.sum, jnp.max, jnp.mean))
    return drawing.add(f"{of.__name__}{dim}", lambda x: of(x, dim, keepdims=keeps), read)


def gather(drawing: Drawing, read: int) -> bool:
    shape = drawing.values[read].shape
    if len(shape) < 2:
        return False
    picked = drawing.draw.choice(((512,), (64,), (8, 64)))
    return drawing.add("rows", lambda x, i: x[i], read, drawing.whole_numbers(*picked))


def along(drawing: Drawing, read: int) -> bool:
    shape = drawing.values[read].shape
    dim = drawing.draw.randrange(len(shape))
    numbers = drawing.whole_numbers(*shape[:dim], 64, *shape[dim + 1 :])
    return drawing.add(f"along{dim}", lambda x, i: jnp.take_along_axis(x, i, dim), read, numbers)


def scatter(drawing: Drawing, read: int) -> bool:
    shape = drawing.values[read].shape
    numbers = drawing.whole_numbers(256)
    values = drawing.argument((256, *shape[1:]))
    if drawing.draw.random() < 0.7:
        return drawing.add("at.add", lambda x, i, y: x.at[i].add(y), read, numbers, values)
    return drawing.add("at.set", lambda x, i, y: x.at[i].set(y), read, numbers, values)


def scattered(drawing: Drawing, read: int) -> bool:
    """Itself, into rows of zeros."""
    shape, rows = drawing.values[read].shape, drawing.draw.choice(SIZES)
    made = (rows, *shape[1:])
    numbers = drawing.whole_numbers(shape[0])
    return drawing.add("0.at.add", lambda x, i: jnp.zeros(made, x.dtype).at[i].add(x), read, numbers)


def ranked(drawing: Drawing, read: int) -> bool:
    count = drawing.draw.choice((2, 8, 64))
    if drawing.values[read].shape[-1] <= count:
        return False
    return drawing.add(f"top{count}", lambda x: jax.lax.top_k(x, count)[0], read)


def ranked_numbers(drawing: Drawing, read: int) -> bool:
    size = drawing.values[read].shape[-1]
    if size < 8:
        return False
    return drawing.add("top_hot", lambda x: jax.nn.one_hot(jax.lax.top_k(x, 1)[1][..., 0], size, dtype=x.dtype), read)


def sorting(drawing: Drawing, read: int) -> bool:
    dim = drawing.draw.randrange(drawing.values[read].ndim)
    return drawing.add(f"sort{dim}", lambda x: jnp.sort(x, axis=dim), read)


def running(drawing: Drawing, read: int) -> bool:
    dim = drawing.draw.randrange(drawing.values[read].ndim)
    return drawing.add(f"cumsum{dim}", lambda x: jnp.cumsum(x, axis=dim), read)


def beside(drawing: Drawing, read: int) -> bool:
    dim = drawing.draw.randrange(drawing.values[read].ndim)
    return drawing.add(f"concat{dim}", lambda x: jnp.concatenate([x, jnp.tanh(x)], dim), read)


def repeated(drawing: Drawing, read: int) -> bool:
    times = [1] * drawing.values[read].ndim
    times[drawing.draw.randrange(len(times))] = 2
    return drawing.add("tile", lambda x: jnp.tile(x, times), read)


def cut(drawing: Drawing, read: int) -> bool:
    shape = drawing.values[read].shape
    dim = drawing.draw.randrange(len(shape))
    size = shape[dim]
    if size < 16:
        return False
    one = drawing.draw.choice(
        (slice(size // 2), slice(size // 4, None), slice(0, None, 2), slice(1, None), slice(0, 8))
    )
    picked = (*(slice(None),) * dim, one)
    return drawing.add(f"cut{dim}[{one.start}:{one.stop}:{one.step}]", lambda x: x[picked], read)


def padded(drawing: Drawing, read: int) -> bool:
    shape = drawing.values[read].shape
    around = [(0, 0)] * len(shape)
    dim = drawing.draw.randrange(len(shape))
    around[dim] = drawing.draw.choice(((0, shape[dim]), (1, 1), (2, 0), (0, 256)))
    return drawing.add(f"pad{dim}{around[dim]}", lambda x: jnp.pad(x, around), read)


def rolled(drawing: Drawing, read: int) -> bool:
    dim, by = drawing.draw.randrange(drawing.values[read].ndim), drawing.draw.choice((1, 3, 128))
    return drawing.add(f"roll{dim}", lambda x: jnp.roll(x, by, dim), read)


def turned(drawing: Drawing, read: int) -> bool:
    dim = drawing.draw.randrange(drawing.values[read].ndim)
    return drawing.add(f"flip{dim}", lambda x: jnp.flip(x, dim), read)


def convolved(drawing: Drawing, read: int) -> bool:
    """Over the second last dim; the last are channels."""
    shape = drawing.values[read].shape
    if len(shape) not in (2, 3) or shape[-1] > 2048:
        return False
    step, channels = drawing.draw.choice((1, 1, 2)), drawing.draw.choice((128, 256))
    kernel = drawing.argument((drawing.draw.choice((1, 3, 4)), shape[-1], channels))

    def of(x: Array, k: Array) -> Array:
        rows = x if x.ndim == 3 else x[None]
        made = jax.lax.conv_general_dilated(rows, k, (step,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))
        return made if x.ndim == 3 else made[0]

    return drawing.add(f"conv/{step}", of, read, kernel)


def pooled(drawing: Drawing, read: int) -> bool:
    shape = drawing.values[read].shape
    dim = drawing.draw.randrange(len(shape))
    window, steps = [1] * len(shape), [1] * len(shape)
    window[dim], steps[dim] = drawing.draw.choice(((2, 2), (3, 1), (4, 4)))
    of, start = drawing.draw.choice(((jax.lax.add, 0.0), (jax.lax.max, -jnp.inf)))
    name = f"pool{dim}/{window[dim]},{steps[dim]}"
    return drawing.add(name, lambda x: jax.lax.reduce_window(x, start, of, window, steps, "SAME"), read)


def scanned(drawing: Drawing, read: int) -> bool:
    """Eight turns that each compute of a part of the rows and a captured weight what they carry."""
    shape = drawing.values[read].shape
    if len(shape) != 2 or shape[0] % 8 or shape[0] < 64:
        return False
    weight = drawing.argument((shape[1], shape[1]))

    def of(x: Array, w: Array) -> Array:
        def turn(carried: Array, rows: Array) -> tuple[Array, Array]:
            carried = jnp.tanh(carried @ w + rows)
            return carried, carried

        parts = x.reshape(8, x.shape[0] // 8, x.shape[1])
        return jax.lax.scan(turn, jnp.zeros_like(parts[0]), parts)[1].reshape(x.shape)

    return drawing.add("scan", of, read, weight)


def looped(drawing: Drawing, read: int) -> bool:
    """Four turns on all of it, with what is captured."""
    other = drawing.argument(drawing.values[read].shape[-1:])

    def of(x: Array, scale: Array) -> Array:
        return jax.lax.scan(lambda c, _: (jnp.tanh(c * scale) + c, None), x, None, length=4)[0]

    return drawing.add("loop", of, read, other)


def masked(drawing: Drawing, read: int) -> bool:
    shape = drawing.values[read].shape
    dim = drawing.draw.randrange(len(shape))

    def of(x: Array) -> Array:
        place = jax.lax.broadcasted_iota(jnp.int32, x.shape, dim)
        return jnp.where(place < shape[dim] // 2, x, jnp.zeros_like(x))

    return drawing.add(f"mask{dim}", of, read)


def cut_at(drawing: Drawing, read: int) -> bool:
    shape = drawing.values[read].shape
    if shape[0] < 16:
        return False
    return drawing.add(
        "cut_at", lambda x, i: jax.lax.dynamic_slice_in_dim(x, i[0], 8, 0), read, drawing.whole_numbers(1)
    )


def put_at(drawing: Drawing, read: int) -> bool:
    shape = drawing.values[read].shape
    if shape[0] < 16:
        return False
    numbers, rows = drawing.whole_numbers(1), drawing.argument((8, *shape[1:]))
    return drawing.add(
        "put_at", lambda x, i, y: jax.lax.dynamic_update_slice_in_dim(x, y, i[0], 0), read, numbers, rows
    )


def centred(drawing: Drawing, read: int) -> bool:
    dim = drawing.draw.randrange(drawing.values[read].ndim)
    return drawing.add(f"centre{dim}", lambda x: (x - x.mean(dim, keepdims=True)) * x.std(), read)


OPERATIONS: tuple[Callable[[Drawing, int], bool], ...] = (
    elementwise,
    elementwise,
    joined,
    joined,
    product,
    product,
    own_product,
    outer,
    transpose,
    transpose,
    flattened,
    unflattened,
    normed,
    softmax,
    reduction,
    gather,
    along,
    scatter,
    scattered,
    ranked,
    ranked_numbers,
    sorting,
    running,
    beside,
    repeated,
    cut,
    padded,
    rolled,
    turned,
    convolved,
    pooled,
    scanned,
    looped,
    masked,
    cut_at,
    put_at,
    centred,
)


# Steps


def drawn_step(draw: Random) -> Step:
    """A chain of three to eight operations with branches, its gradient, or the update of a state that is given away."""
    drawing = Drawing(draw, draw.choice((jnp.float32, jnp.float32, jnp.bfloat16)))
    drawing.argument([draw.choice(SIZES) for _ in range(2)] if draw.random() < 0.75 else [8, *draw.choices(SIZES, k=2)])
    wanted = draw.randint(3, 8)
    for _ in range(TRIES):
        if len(drawing.operations) < wanted:
            draw_operation(drawing)
    name = " ".join(each.name for each in drawing.operations)
    form = draw.choices(("plain", "gradient", "update"), (6, 3, 2))[0]
    first, args = drawing.values[0], drawing.args
    if form == "update":
        names = "state " + name
        return Step(names, jax.jit(updated(drawing), donate_argnums=(0,)), (drawing.values[-1], *args))
    if form == "gradient":
        return Step(f"gradient of {name} {first.shape}", gradient(drawing), args)
    return Step(f"{name} {first.shape}", plain(drawing, draw.random() < 0.3), args)


def draw_operation(drawing: Drawing) -> None:
    """Adds one that reads what was made last, or now and then something before, where its size allows that."""
    draw = drawing.draw
    computed = [n for n, value in enumerate(drawing.values) if jnp.issubdtype(value.dtype, jnp.floating)]
    read = len(drawing.values) - 1 if draw.random() < 0.8 else draw.choice(computed)
    if read not in computed:
        read = computed[-1]
    before = len(drawing.values), len(drawing.arguments)
    if not draw.choice(OPERATIONS)(drawing, read):
        del drawing.values[before[0] :], drawing.arguments[before[1] :]
