"""Patterns of tensor paths."""

from __future__ import annotations

import contextlib
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from meshwright.dsl.errors import FlawError
from meshwright.dsl.patterns import compile_pattern, literal


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("params/**", ["params", "params/a", "params/a/b"], ["params2", "xparams/a", "para"]),
        ("**", ["a", "a/b/c"], []),
        ("**/w", ["w", "a/w", "a/b/w"], ["aw", "w/a"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb", "b"]),
        ("a/**/b/**/c", ["a/b/c", "a/b/x/b/c", "a/x/b/y/c"], ["a/c", "a/b"]),
        ("a/**/w/**", ["a/w", "a/b/w", "a/w/c", "a/b/w/c/d"], ["a", "a/b", "a/bw/c"]),
        ("a/**/**", ["a", "a/b/c"], ["b"]),
        ("*", ["a"], ["a/b"]),
        ("a*/w?", ["a/w1", "abc/wi"], ["a/w", "a/b/wi", "b/wi"]),
        ("*b*d", ["bd", "abcd", "xbxbxd"], ["abc", "db", "b/d"]),
        ("w[io]", ["wi", "wo"], ["wx", "w", "wio"]),
        ("w[!io]", ["wx"], ["wi", "w/", "w"]),
        ("w[a-c]", ["wa", "wb", "wc"], ["wd", "w-"]),
        ("w[*]", ["w*"], ["wx"]),
        ("w[]]", ["w]"], ["w"]),
        ("w[{,}]", ["w{", "w,"], ["w"]),
        ("{wi,wo}/k", ["wi/k", "wo/k"], ["w/k"]),
        ("a{b*,}c", ["ac", "abc", "abxc"], ["axc"]),
        ("{*,x}*", ["", "x", "xyz"], ["x/y"]),
        ("a.b", ["a.b"], ["axb"]),
        ("(a|b)", ["(a|b)"], ["a"]),
    ],
)
def test_what_a_pattern_matches(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = compile_pattern(pattern)
    assert [path for path in matching + others if compiled.matches(path)] == matching


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("", "MW053"),
        ("/a", "MW053"),
        ("a//b", "MW053"),
        ("a**/b", "MW054"),
        ("w[io", "MW055"),
        ("w]", "MW055"),
        ("{a", "MW055"),
        ("{a/b,c}", "MW055"),
        ("{a,{b,c}}", "MW055"),
        ("[a/b]", "MW055"),
        ("{a,b}" * 7, "MW056"),
        ("x" * 501, "MW052"),
        ("w[z-a]", "MW057"),
        ("w[]", "MW057"),
    ],
)
def test_what_is_no_pattern(pattern: str, code: str) -> None:
    with pytest.raises(FlawError) as caught:
        compile_pattern(pattern)
    assert caught.value.flaws[0].code == code
    assert caught.value.flaws[0].at(None).message


def slow_match(pattern: list[str], path: list[str]) -> bool:
    """The oracle: segment by segment, every way to spend a ``**``."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(slow_match(pattern[1:], path[i:]) for i in range(len(path) + 1))
    segment = "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern[0])
    return bool(path) and re.fullmatch(segment, path[0]) is not None and slow_match(pattern[1:], path[1:])


segments = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map("".join)
wild = st.one_of(
    st.just("**"),
    st.lists(st.sampled_from(["a", "b", "*", "?"]), min_size=1, max_size=4)
    .map("".join)
    .map(lambda s: s.replace("**", "*").replace("**", "*")),
)


@given(st.lists(wild, min_size=1, max_size=5), st.lists(segments, min_size=1, max_size=5))
def test_matching_agrees_with_trying_every_way(pattern: list[str], path: list[str]) -> None:
    assert compile_pattern("/".join(pattern)).matches("/".join(path)) == slow_match(pattern, path)


@given(st.text(max_size=30))
def test_any_text_is_a_pattern_or_flawed(text: str) -> None:
    with contextlib.suppress(FlawError):
        compile_pattern(text).matches("a/b")


@given(st.lists(st.text(alphabet="ab*?[]{},!-^", min_size=1, max_size=6), min_size=1, max_size=3).map("/".join))
def test_a_literal_pattern_matches_its_path_alone(path: str) -> None:
    assert compile_pattern(literal(path)).matches(path)
    assert not compile_pattern(literal(path)).matches(path + "x")


@pytest.mark.parametrize("pattern", ["/".join(["**", "a"] * 40), "*a" * 80 + "b", "/".join(["**/a*a*a*"] * 20)])
def test_no_pattern_makes_matching_slow(pattern: str) -> None:
    start = time.process_time()
    compile_pattern(pattern).matches("/".join(["a" * 20] * 100) + "/c")
    assert time.process_time() - start < 1
