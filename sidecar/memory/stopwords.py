"""Words that are in every text and say nothing about it. Pure data.

They are no evidence that a fact answers a question: "what is the" matches everything.
"""

from __future__ import annotations

from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


WORDS: Final = _words(
    """
    a about above after again against all also although always am an and another any anyone anything are aren't
    as ask at away be because been before being below between both but by can can't cannot com come could
    couldn't d did didn't do does doesn't doing don't done down during e.g each eg either else etc ever every
    everything few for from further get gets give given go goes going got had has hasn't have haven't having he
    hello help her here hers hey hi him his how how's however html http https i i'd i'll i'm i've i.e ie if in
    into is isn't it it'd it'll it's its itself just keep kind know let let's lets like ll look m make makes
    many may maybe me might more most much must my myself need needs net never no nor not nothing now of off
    often ok okay on once one only onto or org other our ours out over own per please put quite rather re really
    right s same say see seem shall she should shouldn't show so some someone something still such sure t take
    tell than thank thanks that that's the their them then there there's these they they're thing things think
    this those though through till to too toward try under until up upon us use used uses using ve very via vs
    want wants was wasn't way we we'd we'll we're we've well were weren't what what's when where where's whether
    which while who who's whom whose why will with within without won't would wouldn't www yes yet you you'd
    you'll you're you've your yours yourself
    """
)

CJK_PARTICLES: Final = frozenset("怎谁的了是吗呢吧啊么们这那哪我你他她它在和与把被就也啥嘛呀")
"""Characters of grammar. A bigram with one of them lies across two words, or is no word of content."""

CJK_BIGRAMS: Final = _words(
    """
    什么 怎么 ある いう する ない 一下 一个 一些 一样 一种 一起 不是 不能 东西 个项 为什 为何 之前 之后 什麼 今天 介绍
    以及 但是 何时 使用 关于 其中 几个 可以 可是 可能 告诉 哪个 哪些 因为 多少 如何 如果 对于 已经 帮助 帮忙 应该 怎样
    怎麼 情况 想要 我們 或者 所以 方面 时候 明天 昨天 是否 有什 有关 有哪 有没 来说 没有 然后 现在 用什 目前 直接 相关
    看看 知道 继续 请问 能不 能否 要用 解释 这样 进行 這個 那個 那样 里面 问题 需要
    """
)
"""Words of grammar and of asking, two characters each."""
